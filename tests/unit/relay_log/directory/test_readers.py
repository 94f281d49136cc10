from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import tempfile
import threading
import time
from pathlib import Path

import pytest

from replica.errors import ConfigError, DataLossError, RelayError
from replica.relay_log.directory import readers
from replica.relay_log.directory.readers import (
    MAX_READERS,
    READERS_NAME,
    Reader,
    ReaderRegistration,
    mark_dropped,
    registered_readers,
    removal_lock,
    survey_readers,
)
from replica.relay_log.location import RelayLocation, relay_path
from replica.relay_writer.writer import RelayWriter
from tests.kit.relay.driving import receive
from tests.unit.relay_writer.test_writer import primary_of

PLACE = RelayLocation(3, 4000)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A log of several files."""
    with RelayWriter.open(tmp_path, max_file_bytes=5000) as relay:
        receive(relay, primary_of(30).wire())
        assert relay.committed.file > 5
    return tmp_path


def test_what_is_registered_is_what_is_read(directory: Path) -> None:
    before = time.time()
    registration = ReaderRegistration(directory, "query, one/ü")
    assert registered_readers(directory) == []
    registration.keep_from(PLACE, "0-1-7")
    (reader,) = registered_readers(directory)
    assert reader == Reader("query, one/ü", PLACE, "0-1-7", reader.seen)
    assert before - 1 < reader.seen < time.time() + 1
    registration.keep_from(PLACE._replace(offset=5000), "0-1-8")
    assert [r.position for r in registered_readers(directory)] == ["0-1-8"]
    registration.close()
    registration.close()
    assert registered_readers(directory) == []


def test_a_touch_says_that_the_reader_lives(directory: Path) -> None:
    registration = ReaderRegistration(directory, "q")
    registration.keep_from(PLACE, "0-1-7")
    path = directory / READERS_NAME / "q.json"
    os.utime(path, (1000, 1000))
    assert registered_readers(directory)[0].seen == 1000
    registration.touch()
    assert registered_readers(directory)[0].seen > 1_000_000_000


def test_a_reader_that_was_forgotten_registers_again_when_it_comes_back(directory: Path) -> None:
    registration = ReaderRegistration(directory, "q")
    registration.touch()
    registration.keep_from(PLACE, "0-1-7")
    (directory / READERS_NAME / "q.json").unlink()
    registration.touch()
    assert registered_readers(directory)[0].location == PLACE


def test_a_dropped_reader_learns_why_and_may_begin_behind_what_was_removed(directory: Path) -> None:
    registration = ReaderRegistration(directory, "slow")
    registration.keep_from(PLACE, "0-1-7")
    mark_dropped(directory, registered_readers(directory)[0], 6, "the relay log held more than 5 bytes")
    assert registered_readers(directory) == [], "nothing is kept for it"
    for call in (registration.check, registration.touch, lambda: registration.keep_from(PLACE, "0-1-7")):
        with pytest.raises(DataLossError, match="held more than 5 bytes"):
            call()
    with pytest.raises(DataLossError, match="slow_readers"):
        ReaderRegistration(directory, "slow").check()
    registration.keep_from(RelayLocation(6, 0), "0-1-30")
    registration.check()
    assert registered_readers(directory)[0].location == RelayLocation(6, 0)


def test_registering_for_a_file_that_is_gone_is_refused(directory: Path) -> None:
    relay_path(directory, 1).unlink()
    with pytest.raises(DataLossError, match=r"relay\.000001"):
        ReaderRegistration(directory, "late").keep_from(RelayLocation(1, 500), "0-1-1")
    assert registered_readers(directory) == [], "nothing is kept for a reader that cannot go on"
    with pytest.raises(RelayError, match="No such file"):
        ReaderRegistration(directory / "nowhere", "q").keep_from(RelayLocation(1, 500), "0-1-1")
    ReaderRegistration(directory, "ahead").keep_from(RelayLocation(500, 0), "0-1-1000")


def test_registering_waits_for_a_removal_that_has_not_seen_it(directory: Path) -> None:
    done = threading.Event()

    def register() -> None:
        ReaderRegistration(directory, "q").keep_from(PLACE, "0-1-7")
        done.set()

    with removal_lock(directory):
        thread = threading.Thread(target=register)
        thread.start()
        assert not done.wait(0.05)
    thread.join()
    assert done.is_set()
    held = os.open(directory / READERS_NAME, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_SH)
    with pytest.raises(BlockingIOError), removal_lock(directory):
        pass
    os.close(held)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"version": 1, "na',
        b"[]",
        b"{}",
        b'{"version": 2, "name": "x", "file": 1, "offset": 0, "position": ""}',
        b'{"version": 1, "name": "another", "file": 1, "offset": 0, "position": ""}',
        b'{"version": 1, "name": "", "file": 1, "offset": 0, "position": ""}',
        b'{"version": 1, "name": "x", "file": "one", "offset": 0, "position": ""}',
        b'{"version": 1, "name": "x", "file": 1, "offset": [], "position": ""}',
        b'{"version": 1, "name": "x"}',
        b"\xff\xfe",
        b"[" * 100_000,
        b" " * (1 << 20),
    ],
)
def test_what_is_no_registration_is_left_out_with_a_reason(directory: Path, content: bytes) -> None:
    ReaderRegistration(directory, "good").keep_from(PLACE, "0-1-7")
    (directory / READERS_NAME / "x.json").write_bytes(content)
    survey = survey_readers(directory)
    assert [reader.name for reader in survey.readers] == ["good"]
    assert survey.ignored["x.json"]


def test_links_folders_and_pipes_are_left_out_at_once(directory: Path, tmp_path: Path) -> None:
    folder = directory / READERS_NAME
    (folder / "a folder.json").mkdir()
    os.mkfifo(folder / "pipe.json")
    secret = tmp_path / "secret"
    secret.write_text(json.dumps({"version": 1, "name": "link", "file": 1, "offset": 0, "position": ""}))
    (folder / "link.json").symlink_to(secret)
    survey = survey_readers(directory)
    assert survey.readers == []
    assert sorted(survey.ignored) == ["a folder.json", "link.json", "pipe.json"]


def test_an_unreadable_mark_counts_as_dropped(directory: Path) -> None:
    registration = ReaderRegistration(directory, "q")
    registration.keep_from(PLACE, "0-1-7")
    (directory / READERS_NAME / "q.dropped").write_bytes(b"{")
    with pytest.raises(DataLossError, match="unreadable"):
        registration.check()


@pytest.mark.parametrize("name", ["", "x" * 300, "ü" * 90])
def test_names_that_make_no_file_name_are_refused(directory: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="name"):
        ReaderRegistration(directory, name)


@pytest.mark.parametrize("name", ["../../etc/x", ".", "..", "a/b", "q.json", "q.new", "\0"])
def test_no_name_leaves_the_folder_or_takes_another_ones_file(directory: Path, name: str) -> None:
    ReaderRegistration(directory, "q").keep_from(PLACE, "0-1-1")
    ReaderRegistration(directory, name).keep_from(PLACE, "0-1-7")
    assert {reader.name for reader in registered_readers(directory)} == {"q", name}
    assert len(list((directory / READERS_NAME).iterdir())) == 2


def test_more_readers_than_anybody_has_is_an_error(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "MAX_READERS", 2)
    assert MAX_READERS > 100
    for name in ("a", "b", "c"):
        ReaderRegistration(directory, name).keep_from(PLACE, "")
    with pytest.raises(RelayError, match="More than 2 readers"):
        registered_readers(directory)


def test_the_folder_is_for_the_group_and_each_ones_files_for_itself(directory: Path) -> None:
    assert stat.S_IMODE((directory / READERS_NAME).stat().st_mode) == 0o1770


def test_a_mark_that_only_the_replicas_user_may_remove_does_not_hold_a_reader_back(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registration = ReaderRegistration(directory, "slow")
    registration.keep_from(PLACE, "0-1-7")
    mark_dropped(directory, registered_readers(directory)[0], 6, "for a test")
    real = os.unlink

    def sticky(path: object) -> None:
        if str(path).endswith(".dropped"):
            raise PermissionError(1, "Operation not permitted")
        real(str(path))

    monkeypatch.setattr(os, "unlink", sticky)
    registration.keep_from(RelayLocation(6, 0), "0-1-30")
    registration.check()
    registration.touch()
    assert registered_readers(directory)[0].location == RelayLocation(6, 0)
    registration.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_who_may_not_write_there_is_told_how(directory: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can become another user")
    # The folders of pytest are for its own user.
    with tempfile.TemporaryDirectory() as everybodys:
        seen = Path(shutil.copytree(directory, Path(everybodys) / "relay"))
        for one in (seen.parent, seen, seen / READERS_NAME):
            one.chmod(0o755)
        child = os.fork()
        if not child:
            code = 1
            try:
                os.setgroups([])
                os.setgid(65_534)
                os.setuid(65_534)
                ReaderRegistration(seen, "q").keep_from(PLACE, "0-1-7")
            except RelayError as error:
                code = 0 if "may not register" in str(error) and "group" in error.hint else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
