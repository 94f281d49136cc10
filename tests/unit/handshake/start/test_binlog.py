"""Which binlog files there are, and the last one begun by a time, by halving."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.errors import PrerequisiteError
from replica.handshake.start import binlog as module
from replica.handshake.start.binlog import BegunFile, BinlogFiles, binlog_files, last_begun_by
from replica.options.config import Endpoint, ReplicaConfig
from tests.unit.handshake.steps import converse

if TYPE_CHECKING:
    from replica.handshake.registration import Rows

CONFIG = ReplicaConfig.parse({"user": "repl"})
HERE = Endpoint("localhost", 3306, "")


@pytest.mark.parametrize(("oldest", "newest"), [(1, 1), (17, 40), (40, 40), (999_999, 1_000_001)])
def test_halving_finds_the_oldest_file(oldest: int, newest: int) -> None:
    answers: dict[str, Rows] = {"SHOW STATUS": [("Binlog_snapshot_file", f"db.x.{newest:06d}")]}
    answers |= {f"SELECT BINLOG_GTID_POS('db.x.{n:06d}', 4)": [("",)] for n in range(oldest, newest + 1)}
    answers["SELECT BINLOG_GTID_POS"] = [(None,)]
    said, files = converse(binlog_files(), answers)
    assert files == BinlogFiles("db.x.", oldest, newest)
    assert files.name(newest) == f"db.x.{newest:06d}"
    assert len(said) < 25


def test_a_server_without_binlog_is_refused() -> None:
    with pytest.raises(PrerequisiteError, match="reports no binlog file"):
        converse(binlog_files(), {"SHOW STATUS": []})


@pytest.mark.parametrize("purged", [0, 2])
async def test_the_last_file_begun_by_a_time_is_found_with_few_looks(
    purged: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File n was begun at 100 n; the first ones may go while we look."""
    looks: list[str] = []

    async def begun_at(_config: object, _endpoint: object, file: str) -> int | None:
        looks.append(file)
        number = int(file.removeprefix("bin."))
        return None if number < 5 + purged else 100 * number

    monkeypatch.setattr(module, "begun_at", begun_at)
    files = BinlogFiles("bin.", 5, 4000)
    for time_s in (699, 700, 799, 100_050, 400_000, 999_999):
        looks.clear()
        found = await last_begun_by(CONFIG, HERE, files, time_s)
        number = min(time_s // 100, 4000)
        assert found == (BegunFile(f"bin.{number:06d}", 100 * number) if number >= 5 + purged else None)
        assert len(looks) <= 13
    assert await last_begun_by(CONFIG, HERE, files, 499) is None
