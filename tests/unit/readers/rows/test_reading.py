"""What crosses ranges and files: prepared XA transactions and the names of columns."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest

from replica.protocol.events.binlog_file import decode_file
from replica.protocol.events.decode import GtidEvent
from replica.protocol.gtid import Gtid
from replica.readers.rows import reading as module
from tests.unit.commands.dump.files import reading, said, vector
from tests.unit.commands.dump.outputs.test_json_lines import rows, write_json_rows

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = "11.8/transactions"


def split(folder: Path, gtid: Gtid, *, packed: bool) -> list[Path]:
    """The recorded file in two, the second from this group on, each with its FORMAT_DESCRIPTION."""
    data = vector(SOURCE).read_bytes()
    events = list(decode_file(data))
    head = data[: events[0][0].end]
    at = next(found.offset for found, event in events if isinstance(event, GtidEvent) and event.gtid == gtid)
    files = []
    for name, content in (("one", data[:at]), ("two", head + data[at:])):
        path = folder / name
        path.write_bytes(gzip.compress(content) if packed else content)
        files.append(path)
    return files


def without_place(found: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{name: value for name, value in row.items() if name not in ("file", "position")} for row in found]


@pytest.mark.parametrize("in_memory", [module.CARRIED_IN_MEMORY, 0], ids=["memory", "temporary file"])
@pytest.mark.parametrize("packed", [False, True], ids=["mapped", "gzip"])
def test_prepared_transactions_and_names_cross_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: int, *, packed: bool
) -> None:
    monkeypatch.setattr(module, "CARRIED_IN_MEMORY", in_memory)
    files = split(tmp_path, Gtid(0, 1, 13), packed=packed)  # between XA PREPARE and XA COMMIT
    assert without_place(rows(*files)) == without_place(rows(vector(SOURCE)))


def test_an_xa_commit_whose_rows_are_nowhere_is_said_and_the_rest_is_shown(tmp_path: Path) -> None:
    _, second = split(tmp_path, Gtid(0, 1, 13), packed=False)
    read = reading([second])
    out = tmp_path / "out"
    with out.open("wb") as file:
        write_json_rows(read, file)
    assert "0-1-14 commits the XA transaction X'7831'" in said(read)
    assert read.notices.exit_code == 80
    gtids = {json.loads(line)["gtid"] for line in out.read_bytes().splitlines()}
    assert "0-1-14" not in gtids
    assert {"0-1-13", "0-1-16"} <= gtids


def test_a_transaction_that_is_still_prepared_at_the_end_is_said(tmp_path: Path) -> None:
    first, _ = split(tmp_path, Gtid(0, 1, 13), packed=False)
    read = reading([first])
    with (tmp_path / "out").open("wb") as file:
        write_json_rows(read, file)
    assert said(read).count("is prepared, but neither committed nor rolled back") == 2
    assert read.notices.exit_code == 0
