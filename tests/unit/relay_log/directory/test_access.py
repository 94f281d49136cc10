"""Who may read a relay directory, whatever the umask; and that nothing is written through a link."""

from __future__ import annotations

import contextlib
import grp
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from replica.errors import ConfigError, RelayError
from replica.protocol.gtid import Gtid, GtidPosition
from replica.relay_log.directory.disk import Access, grant, make_folder
from replica.relay_log.directory.head import HEAD_NAME, read_head
from replica.relay_log.directory.identity import take_identity
from replica.relay_log.directory.lock import LOCK_NAME, lock_holder
from replica.relay_log.directory.readers import ReaderRegistration, survey_readers
from replica.relay_log.location import RelayLocation, index_path, relay_numbers, relay_path
from replica.relay_writer.retention import SteppedClock
from replica.relay_writer.writer import RelayWriter
from tests.kit.binlog.primary import Primary
from tests.kit.relay.driving import receive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

START = GtidPosition.parse("0-1-1")
NOBODY = 65_534


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct, autouse=True)
def any_umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(directory: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir() if path.is_file()}


def a_life(directory: Path) -> None:
    """Everything that is written into a relay directory by the replica."""
    primary = Primary.dump()
    for seq in range(2, 9):
        primary.transaction(Gtid(0, 1, seq))
    with RelayWriter.open(directory, start=START, max_file_bytes=500) as relay:
        take_identity(directory, drawn=7, configured=False, owner="daemon")
        SteppedClock(directory).tick(1e9, 1.0)
        receive(relay, primary.wire())
        relay.close()
    index_path(directory, 1).unlink()
    RelayWriter.open(directory).close()  # makes it again
    assert index_path(directory, 1).exists()


@pytest.mark.parametrize(
    ("access", "folder", "files"), [("owner", 0o700, 0o600), ("group", 0o750, 0o640), ("all", 0o755, 0o644)]
)
def test_the_directory_says_who_reads_its_files(tmp_path: Path, access: str, folder: int, files: int) -> None:
    relay = tmp_path / "relay"
    grant(relay, Access.parse(access))
    a_life(relay)
    assert (stat.S_IMODE(relay.stat().st_mode), modes(relay)) == (folder, {files})
    assert stat.S_IMODE((relay / "readers").stat().st_mode) == 0o1770


def test_what_is_there_follows_another_word_and_what_is_not_ours_stays(tmp_path: Path) -> None:
    for word, files in (("owner", 0o600), ("all", 0o644), ("group", 0o640), ("owner", 0o600)):
        grant(tmp_path, Access.parse(word))
        if not modes(tmp_path):
            a_life(tmp_path)
        assert modes(tmp_path) == {files}
    (tmp_path / "theirs").touch(0o644)
    (tmp_path / "theirs").chmod(0o644)
    (tmp_path / "relay.link").symlink_to("theirs")
    grant(tmp_path, Access.parse("owner"))
    assert stat.S_IMODE((tmp_path / "theirs").stat().st_mode) == 0o644


def test_without_a_word_the_group_reads_and_nobody_else(tmp_path: Path) -> None:
    a_life(tmp_path / "relay")
    assert stat.S_IMODE((tmp_path / "relay").stat().st_mode) & 0o007 == 0
    assert {mode & 0o037 for mode in modes(tmp_path / "relay")} == {0}


def test_a_directory_of_an_older_version_is_closed_and_a_group_that_writes_goes_on_to(tmp_path: Path) -> None:
    for before, access, after in ((0o755, "group", 0o750), (0o2775, "group", 0o2770), (0o770, "owner", 0o700)):
        tmp_path.chmod(before)
        grant(tmp_path, Access.parse(access))
        assert stat.S_IMODE(tmp_path.stat().st_mode) == after


def test_a_folder_that_others_use_is_not_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "readers").mkdir()
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "a neighbour's").touch()
    tmp_path.chmod(0o1777)
    with pytest.raises(ConfigError, match=r"holds a neighbour's\."):
        grant(tmp_path, Access.parse("group"))
    assert tmp_path.stat().st_mode & 0o7777 == 0o1777
    tmp_path.chmod(0o755)
    grant(tmp_path, Access.parse("all"))
    tmp_path.chmod(0o1770)
    grant(tmp_path, Access.parse("group"))  # closed by hand
    (tmp_path / "a neighbour's").unlink()
    tmp_path.chmod(0o755)
    grant(tmp_path, Access.parse("group"))
    assert tmp_path.stat().st_mode & 0o777 == 0o750


def test_words_that_mean_nothing_and_groups_that_are_not_there(tmp_path: Path) -> None:
    for text in ("", "0750", "group:", "group:a b", "world"):
        with pytest.raises(ValueError, match="not one of"):
            Access.parse(text)
    with pytest.raises(ConfigError, match="there is no group 'no-such-group'"):
        grant(tmp_path, Access.parse("group:no-such-group"))


@pytest.mark.parametrize("name", [LOCK_NAME, HEAD_NAME, "relay.000001", "relay.000001.idx"])
def test_nothing_is_written_through_a_link(tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"untouched")
    make_folder(tmp_path / "relay")
    (tmp_path / "relay" / name).symlink_to(victim)
    primary = Primary.dump(Gtid(0, 1, 2))
    refused = contextlib.suppress(RelayError)  # or the link is removed, as a torn file is
    with refused, RelayWriter.open(tmp_path / "relay", start=START) as relay:
        receive(relay, primary.wire())
    assert victim.read_bytes() == b"untouched"


@pytest.mark.parametrize("name", [LOCK_NAME, HEAD_NAME])
def test_a_link_is_named(tmp_path: Path, name: str) -> None:
    make_folder(tmp_path / "relay")
    (tmp_path / "relay" / name).symlink_to(tmp_path / "victim")
    with pytest.raises(RelayError, match=rf"{name} is a symbolic link\. Remove it"):
        RelayWriter.open(tmp_path / "relay")
    assert not (tmp_path / "victim").exists()


def as_another(groups: list[int], work: Callable[[], None]) -> bool:
    """Whether another user of this machine, a member of `groups`, can do it."""
    child = os.fork()
    if not child:
        code = 1
        try:
            os.setgroups(groups)
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("before", ["", "group", "owner", "all"], ids=lambda before: f"before: {before}")
def test_a_member_of_the_named_group_reads_and_registers_and_a_stranger_does_not(before: str) -> None:
    if os.geteuid():
        pytest.skip("only root can become another user")
    group = next(one for one in grp.getgrall() if one.gr_gid not in (0, NOBODY))
    with tempfile.TemporaryDirectory() as everybodys:  # the folders of pytest are for its own user
        Path(everybodys).chmod(0o755)
        relay = Path(everybodys) / "relay"
        if before:
            grant(relay, Access.parse(before))
            a_life(relay)
        grant(relay, Access.parse(f"group:{group.gr_name}"))
        if before:
            RelayWriter.open(relay).close()
        else:
            a_life(relay)

        def read() -> None:
            assert read_head(relay) is not None
            assert lock_holder(relay) is None
            for number in relay_numbers(relay):
                assert relay_path(relay, number).read_bytes()
                assert index_path(relay, number).read_bytes()

        def register() -> None:
            os.umask(0o077)
            ReaderRegistration(relay, "query").keep_from(RelayLocation(1, 400), "0-1-2")

        assert as_another([group.gr_gid], read)
        assert as_another([group.gr_gid], register)
        assert not as_another([], read)
        assert not as_another([], register)
        assert {path.stat().st_gid for path in relay.iterdir()} == {group.gr_gid}
        assert [reader.name for reader in survey_readers(relay).readers] == ["query"]
        assert stat.S_IMODE((relay / "readers" / "query.json").stat().st_mode) & 0o004, "whoever retains has to read it"
