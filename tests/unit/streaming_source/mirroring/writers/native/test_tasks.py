"""A task reports why it wrote nothing, and ends for no error of one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from streaming_source.mirroring.writers.native import delta_rows, writer
from streaming_source.mirroring.writers.native.merge import net_changes
from streaming_source.mirroring.writers.native.tasks import ChangesTask

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def worker() -> Iterator[None]:
    """A process that has not looked at its deltalake yet."""
    writer.check_worker.cache_clear()
    yield
    writer.check_worker.cache_clear()


@pytest.mark.usefixtures("worker")
def test_an_executor_with_another_deltalake_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    merged: list[str] = []
    monkeypatch.setattr(writer, "version", lambda _: "1.5.0")
    monkeypatch.setattr(net_changes, "net_changes", lambda *_: "rows")
    monkeypatch.setattr(delta_rows, "merge_rows", lambda folder, *_: merged.append(folder))
    nothing: Any = None
    task = ChangesTask(7, "/lake/t", nothing, delta_rows.TargetShape("current", (), (), ()), nothing)
    told = task([])
    assert (told.number, told.files) == (7, ())
    assert "deltalake 1.5.0 is installed, a version that the mirror does not support" in str(told.reason)
    assert merged == []

    monkeypatch.setattr(writer, "version", lambda _: "1.6.6")
    assert task([]) == (7, None, (), ())
    assert merged == ["/lake/t"]
