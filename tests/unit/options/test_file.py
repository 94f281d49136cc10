"""MariaDB's option files, with its own client as the judge of their syntax."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replica.errors import ConfigError
from replica.options.file import MAX_FILE_BYTES, Setting, read_option_file
from tests.fixtures.installation import installation

GROUPS = ("client", "client-server", "client-mariadb")  # those of the client that are no version's own


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def told_by_the_client(path: Path) -> str:
    """What the client would have been started with: every option of its groups, joined by spaces."""
    command = [installation().binary("mariadb"), f"--defaults-file={path}", "--print-defaults"]
    shown = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    return shown.split("following arguments:\n", 1)[1].removesuffix("\n")


def told_by_us(path: Path) -> str:
    ours = [one for one in read_option_file(path) if one.group in GROUPS]
    return "".join(f"--{one.name}{'' if one.value is None else f'={one.value}'} " for one in ours)


FILE = r"""
# a comment
  ; another
[mysqld]
user = mysqld
[client]
user = repl ; no comment
password="a#b\"c\\d\s\n\x" # a comment
host=	db1
empty =
quick
spaced name = 'it''s'
one = "
two = \
backslashes = a\\b\tc\'d\q
sharp = a#b
sharp-in-quotes = 'a#b' # c
mixed = "a'b#c'd"
[ client ]
user = nobody
[client ]  # rest of the line is nothing
port=3307
[client-mariadb]
under_score=1
equals = a=b=c
unicode = pässwörd€
"""


@pytest.mark.server
def test_the_servers_own_client_reads_the_same(tmp_path: Path) -> None:
    path = write(tmp_path / "my.cnf", FILE)
    assert told_by_us(path) == told_by_the_client(path)


_TEXT = st.text(alphabet="ab \t'\"\\#;=nst-_é", max_size=12)
_LINE = st.one_of(
    st.builds(lambda name, value: f"o{name}={value}", st.text("ab-_", max_size=3), _TEXT),
    st.builds(lambda text: f"o{text}", st.text("ab #'=", max_size=6)),
    st.sampled_from(["", "# c", " ; c", "[client]", "[other]", " [client-mariadb] "]),
)


@pytest.mark.server
@settings(max_examples=40)
@given(st.lists(_LINE, max_size=30))
def test_and_whatever_else_is_written(lines: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "random.cnf", "\n".join(["[client]", *lines, ""]))
        assert told_by_us(path) == told_by_the_client(path)


@pytest.mark.server
def test_includes_stand_in_their_place(tmp_path: Path) -> None:
    folder = tmp_path / "conf.d"
    folder.mkdir()
    write(folder / "b.cnf", "[client]\nb=1\n")
    write(folder / "a.cnf", f"[mysqld]\nx=1\n!include {tmp_path}/deep.cnf\n")
    write(folder / "c.ini", "[client]\nnot=read\n")
    write(tmp_path / "deep.cnf", "[client]\ndeep=1\n")
    path = write(
        tmp_path / "my.cnf", f"[client]\nfirst=1\n!includedir {folder}\nstill-client=1\n!include\t{tmp_path}/deep.cnf\n"
    )
    assert told_by_us(path) == told_by_the_client(path)
    assert [one.name for one in read_option_file(path)] == ["first", "x", "deep", "b", "still-client", "deep"]


def test_a_relative_include_is_beside_its_file(tmp_path: Path) -> None:
    write(tmp_path / "more.cnf", "[client]\nuser=u\n")
    path = write(tmp_path / "my.cnf", "!include more.cnf\n")
    assert read_option_file(path) == [Setting("client", "user", "u", f"{tmp_path}/more.cnf:2")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("user=secret\n", "my.cnf:1: an option is before the first group"),
        ("[client\nuser=secret\n", "my.cnf:1: a group's name has no closing bracket"),
        ("[client]\n!includes secret\n", "my.cnf:2: only !include"),
        ("[client]\n!include\n", "my.cnf:2: only !include"),
        ("!include my.cnf\n", "is included 11 levels deep"),
        ("!include gone.cnf\n", r"gone\.cnf cannot be read"),
        ("!includedir gone\n", "my.cnf:1: the folder cannot be read"),
    ],
)
def test_files_that_are_refused_say_where_and_not_what(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        read_option_file(write(tmp_path / "my.cnf", text))
    assert "secret" not in str(caught.value)


def test_a_file_that_anybody_can_change_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "my.cnf", "[client]\nuser=u\n", 0o666)
    with pytest.raises(ConfigError, match="is writable by every user"):
        read_option_file(path)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_option_file(tmp_path)
    (tmp_path / "binary").write_bytes(b"[client]\npassword=\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_option_file(tmp_path / "binary")
    with (tmp_path / "long").open("wb") as file:
        os.ftruncate(file.fileno(), MAX_FILE_BYTES + 1)
    with pytest.raises(ConfigError, match="too many for an option file"):
        read_option_file(tmp_path / "long")


def test_values_are_in_no_repr(tmp_path: Path) -> None:
    assert "hidden" not in repr(read_option_file(write(tmp_path / "my.cnf", "[client]\npassword=hidden\n")))
