"""Requests of a mirror: one folder for one checkpoint, however it is written; a word asks once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming_source.driver import deployment
from streaming_source.mirroring.reading.resnapshot import request_resnapshot, requests_folder
from streaming_source.offsets.reading_requests import RequestFolder

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

A, B = ("shop", "a"), ("shop", "b")


def test_a_checkpoint_has_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.chdir(tmp_path)
    folder = requests_folder(str(tmp_path / "mirror"))
    assert folder.is_relative_to(tmp_path)
    assert {requests_folder(one) for one in ("mirror", f"{tmp_path}/mirror/", f"file://{tmp_path}/mirror")} == {folder}
    assert len({folder, requests_folder("other"), requests_folder("s3://a/mirror"), requests_folder("mirror/x")}) == 4


def test_a_request_is_due_when_its_time_has_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment.tempfile, "gettempdir", lambda: str(tmp_path))
    request_resnapshot("mirror", [B, A], "now")
    request_resnapshot("mirror", [A], "now")
    request_resnapshot("mirror", [A, B], "later", wait_s=3600)
    folder = RequestFolder(requests_folder("mirror"))
    assert [(one.request_id, one.tables) for one in folder.due()] == [("now", (A,))]
    assert {one.request_id for one in folder.waiting()} == {"now", "later"}
    folder.remove(["now", "never there"])
    assert [(one.request_id, one.tables) for one in folder.waiting()] == [("later", (A, B))]
