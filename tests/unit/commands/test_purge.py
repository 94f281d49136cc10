from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from replica.commands.cli import program
from replica.errors import ConfigError, DataLossError, RelayError, ReplicaError
from replica.protocol.gtid import Gtid, GtidPosition
from replica.relay_log.directory.identity import take_identity
from replica.relay_log.directory.readers import ReaderRegistration, removal_lock
from replica.relay_log.files.index import last_entry
from replica.relay_log.location import RelayLocation, index_path, relay_numbers, relay_path
from replica.relay_log.log import RelayLog
from replica.relay_writer.writer import RelayWriter
from tests.kit.binlog.primary import Primary
from tests.kit.relay.driving import receive

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Five files or more of a few groups each."""
    primary = Primary.dump()
    for number in range(1, 61):
        primary.transaction(Gtid(0, 1, number), (100,))
    with RelayWriter.open(tmp_path / "relay", start=GtidPosition(), max_file_bytes=4000) as relay:
        receive(relay, primary.wire(), [400])
    assert len(relay_numbers(tmp_path / "relay")) >= 5
    return tmp_path / "relay"


def purge(directory: Path, *arguments: str) -> Result:
    return CliRunner().invoke(program, ["purge", "--relay-dir", str(directory), *arguments])


def answer(directory: Path, *arguments: str) -> dict[str, object]:
    done = purge(directory, "--json", *arguments)
    assert done.exit_code == 0, done.exception
    found: dict[str, object] = json.loads(done.stdout)
    return found


def refusal(directory: Path, *arguments: str) -> ReplicaError:
    error = purge(directory, *arguments).exception
    assert isinstance(error, ReplicaError), error
    return error


def end_of(directory: Path, number: int) -> GtidPosition:
    entry = last_entry(index_path(directory, number))
    assert entry is not None
    return entry.position


def test_all_but_the_file_with_the_last_transaction(directory: Path) -> None:
    *old, last = relay_numbers(directory)
    told = answer(directory, "--all-but-last")
    assert told["files"] == [f"relay.{number:06d}" for number in old]
    assert relay_numbers(directory) == [last]
    assert not any(index_path(directory, number).exists() for number in old)
    assert told["begins_after"] == str(RelayLog(directory).first_position())
    assert "holds the last transaction" in str(told["stopped"])
    with RelayWriter.open(directory) as relay:
        assert relay.position == GtidPosition.parse("0-1-60")
    assert "Nothing to remove" in purge(directory, "--all-but-last").stdout


def test_a_dry_run_removes_nothing(directory: Path) -> None:
    before = relay_numbers(directory)
    done = purge(directory, "--all-but-last", "--dry-run")
    assert "would be removed" in done.stdout
    assert "The log would begin after 0-1-" in done.stdout
    assert relay_numbers(directory) == before


def test_before_a_gtid_the_file_that_holds_it_stays(directory: Path) -> None:
    _, second, *rest = relay_numbers(directory)
    last_of_second = end_of(directory, second)[0]
    answer(directory, "--before", str(last_of_second))
    assert relay_numbers(directory) == [second, *rest]
    answer(directory, "--before", str(last_of_second._replace(seq_no=last_of_second.seq_no + 1)))
    assert relay_numbers(directory) == rest
    assert RelayLog(directory).first_position() == GtidPosition((last_of_second,))


def test_by_size(directory: Path) -> None:
    numbers = relay_numbers(directory)
    sizes = {number: relay_path(directory, number).stat().st_size for number in numbers}
    answer(directory, "--keep", str(sum(sizes.values()) - 1))
    assert relay_numbers(directory) == numbers[1:]
    answer(directory, "--keep", "1")
    assert relay_numbers(directory) == numbers[-1:]


def test_by_age(directory: Path) -> None:
    numbers = relay_numbers(directory)
    for number in numbers[:2]:
        os.utime(relay_path(directory, number), (1_700_000_000, 1_700_000_000))
    answer(directory, "--older-than", "1d")
    assert relay_numbers(directory) == numbers[2:]


def test_readers_keep_what_they_need(directory: Path) -> None:
    numbers = relay_numbers(directory)
    reader = ReaderRegistration(directory, "a query")
    reader.keep_from(RelayLocation(numbers[2], 500), "0-1-30")
    done = purge(directory, "--all-but-last")
    assert relay_numbers(directory) == numbers[2:]
    assert f"relay.{numbers[2]:06d} is still needed by a query" in done.stdout
    assert f"a query: at relay.{numbers[2]:06d}:500, after 0-1-30" in done.stdout
    reader.touch()


def test_unless_it_is_forced_and_then_they_are_told(directory: Path) -> None:
    numbers = relay_numbers(directory)
    reader = ReaderRegistration(directory, "a query")
    reader.keep_from(RelayLocation(numbers[2], 500), "0-1-30")
    done = purge(directory, "--all-but-last", "--force")
    assert relay_numbers(directory) == numbers[-1:]
    assert "a query: at" in done.stdout
    assert "loses files that it has not read" in done.stdout
    with pytest.raises(DataLossError, match="someone purged them with --force"):
        reader.check()


def test_a_running_query_of_its_own_is_left_alone(directory: Path) -> None:
    take_identity(directory, drawn=7, configured=False, owner="embedded")
    assert isinstance(refusal(directory, "--all-but-last"), RelayError)
    assert len(relay_numbers(directory)) >= 5
    assert purge(directory, "--all-but-last", "--force").exit_code == 0


def test_beside_a_writer(directory: Path) -> None:
    with RelayWriter.open(directory) as relay:
        answer(directory, "--all-but-last")
        assert relay.position == GtidPosition.parse("0-1-60")
        primary = Primary(sequence=60)
        primary.open_file("bin.000008")
        primary.transaction(Gtid(0, 1, 61), (100,))
        receive(relay, primary.wire())
    assert RelayLog(directory).locate(GtidPosition.parse("0-1-61")) is not None


def test_the_lock_is_waited_for_and_not_for_ever(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replica.commands.purge.LOCK_WAIT_S", 0.0)
    (directory / "readers").mkdir(exist_ok=True)
    with removal_lock(directory):
        assert "is held for more than" in str(refusal(directory, "--all-but-last"))
    assert len(relay_numbers(directory)) >= 5


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "no option selects the files"),
        (("--all-but-last", "--keep", "1g"), "--keep and --all-but-last exclude each other"),
        (("--keep", "much"), "--keep: 'much' is not a size"),
        (("--older-than", "long"), "--older-than: 'long' is not a time"),
        (("--before", "3-1-1"), "does not have domain 3"),
        (("--before", "x"), "'x' is not a GTID"),
        (("--before", ""), "no GTID was given"),
    ],
)
def test_what_is_refused(directory: Path, arguments: tuple[str, ...], words: str) -> None:
    error = refusal(directory, *arguments)
    assert isinstance(error, ConfigError)
    assert words in str(error)


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    assert "holds no relay log" in str(refusal(tmp_path, "--all-but-last"))
    assert "not a relay directory" in str(refusal(tmp_path / "nowhere", "--all-but-last"))
    assert [entry.name for entry in tmp_path.iterdir()] == ["letter.txt"]
