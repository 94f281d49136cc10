"""An older Spark is refused, a newer one than all tested is told so once, and tested ones hear nothing."""

from __future__ import annotations

import logging

import pytest

from replica.errors import ConfigError
from streaming_source.driver.spark_border import SPARK_VERSIONS, require_spark, warn_of_newer_spark
from streaming_source.source import data_source
from streaming_source.source.data_source import MariaDbBinlogSource


@pytest.mark.parametrize("version", ["3.5.8", "4.1.4"])
def test_an_older_one_is_refused(version: str) -> None:
    with pytest.raises(ConfigError, match=f"needs Spark 4.2 or newer, this is {version}"):
        require_spark(version)


@pytest.mark.parametrize("version", [one.tested for one in SPARK_VERSIONS])
def test_a_tested_one_is_used_without_a_word(version: str, caplog: pytest.LogCaptureFixture) -> None:
    require_spark(version)
    warn_of_newer_spark(version)
    assert not caplog.records


@pytest.mark.parametrize("version", ["4.4.0", "4.10.1", "5.0.0.dev1"])
def test_a_newer_one_gets_one_warning_a_load(
    version: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_source, "spark_version", version)
    loaded = MariaDbBinlogSource({"user": "u", "table": "no-table"})
    for call in (loaded.schema, lambda: loaded.reader(None), lambda: loaded.streamReader(None)):  # type: ignore[arg-type]
        try:
            call()
        except ConfigError as error:  # the table's name is none
            assert "no-table" in str(error)  # noqa: PT017
    said = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(said) == 1
    assert f"is tested with Spark 4.2 and 4.3, and this is {version}: it may work." in said[0].getMessage()


def test_versions_are_in_order_and_named() -> None:
    assert [one.minor for one in SPARK_VERSIONS] == sorted(one.minor for one in SPARK_VERSIONS)
    assert all(one.tested.startswith(f"{one.name}.") for one in SPARK_VERSIONS)
