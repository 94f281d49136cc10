"""A mirror starts with the versions of deltalake that were tried, and with no other."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from replica.errors import ConfigError
from streaming_source.mirroring.writers.native import writer

PROJECT = Path(__file__).resolve().parents[6]


@pytest.mark.parametrize("found", ["1.6.6", "1.6.12"])
def test_versions_that_were_tried_pass(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "version", lambda _: found)
    writer.check_deltalake()


@pytest.mark.parametrize("found", ["1.6.5", "1.7.0", "0.25.5", "2.0", "1.7.0rc1"])
def test_other_versions_are_refused_by_name(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "version", lambda _: found)
    with pytest.raises(
        ConfigError, match=f"deltalake {found} is installed, a version that the mirror does not support"
    ) as refused:
        writer.check_deltalake()
    assert "writer=spark" in str(refused.value)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(writer, "version", missing)
    with pytest.raises(ConfigError, match="which is not installed") as refused:
        writer.check_deltalake()
    assert '"deltalake>=1.6.6,<1.7"' in str(refused.value)


def test_the_package_asks_for_the_same_versions() -> None:
    assert '"deltalake>=1.6.6,<1.7"' in (PROJECT / "pyproject.toml").read_text()
    assert ".".join(map(str, writer.OLDEST)) == "1.6.6"
    assert ".".join(map(str, writer.NEXT)) == "1.7"
