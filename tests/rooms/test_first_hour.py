"""The demo and the tutorial in clean rooms: bare, busy, small, without a network, as another user, interrupted.

Each room is a machine that has nothing of this one, see `tools/rooms/room.py`. `scripts/test-rooms` runs them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tools.rooms.transcript import expected, first_hour

if TYPE_CHECKING:
    from tests.rooms.conftest import SetUp
    from tools.rooms.room import Ran, Room

pytestmark = [pytest.mark.slow, pytest.mark.room, pytest.mark.timeout(3600)]

PROVED = "EQUAL: every value of every row of every table"
BUSY = 20
"""How many programs want a processor all the time."""
SMALL_BYTES = 4 << 30
ODD = "/srv/Jörg's Müll und Öl"
KEPT_BY_JAVA = "/tmp/hsperfdata_"  # noqa: S108
"""A folder of the Java machine, which it leaves, empty."""
EMPTY = {"/tmp/spark-mariadb-binlog-0"}  # noqa: S108
"""A folder of the user's own for all queries, which stays; its files do not."""


def proved(ran: Ran) -> None:
    assert ran.code == 0, ran.text
    assert PROVED in ran.text, ran.text
    assert "Traceback" not in ran.text, ran.text
    print(f"{ran.seconds:.0f} s\n{ran.text}")  # for who looks at it with -s


def test_the_demo_on_a_bare_machine(set_up: SetUp) -> None:
    proved(set_up.demo)


def test_a_second_run_needs_no_network(room: Room) -> None:
    proved(room.run("scripts/demo", alone=True))


def test_twenty_busy_programs_on_the_same_cores(room: Room) -> None:
    hogs = f"for n in $(seq {BUSY}); do (while :; do :; done) & done"
    ran = room.run(f"{hogs}; scripts/demo --seconds 4; code=$?; cat /proc/loadavg; exit $code", alone=True)
    proved(ran)
    assert float(ran.text.splitlines()[-1].split()[0]) > BUSY / 2, "the machine was not busy"


def test_four_gigabytes_are_enough(room: Room) -> None:
    proved(room.run("scripts/demo", alone=True, memory_bytes=SMALL_BYTES))


def test_a_home_that_can_only_be_read(room: Room) -> None:
    home = room.folder / "up" / "locked"
    home.mkdir()
    ran = room.run("scripts/demo", alone=True, home="/locked", home_is_locked=True)
    proved(ran)
    assert not any(home.iterdir())


def test_someone_who_may_not_install_is_told_what_is_missing(bare: Room) -> None:
    bare.add_project("/home/stranger/project", owner="stranger")
    ran = bare.run("scripts/demo", person="stranger", folder="/home/stranger/project")
    assert ran.code == 1, ran.text
    for words in ("missing: python java.", "python3 python3-venv", "openjdk-17-jre-headless", "run this as root"):
        assert words in ran.text, ran.text
    assert "Traceback" not in ran.text


def test_someone_else_in_a_path_with_spaces_and_umlauts(room: Room) -> None:
    room.add_project(ODD, owner="stranger")
    proved(room.run("scripts/demo", person="stranger", folder=ODD))


def test_an_hour_with_a_wheel_and_a_server_and_no_script(bare: Room) -> None:
    ran = first_hour(bare)
    assert ran.code == 0, ran.text
    missing = [line for line in expected() if line not in ran.text]
    assert missing == [], ran.text
    assert ran.text.count("EQUAL at") == 2, ran.text
    assert "NOT EQUAL" not in ran.text, ran.text
    assert "Traceback" not in ran.text, ran.text


@pytest.mark.parametrize("seconds", [0, 2])
@pytest.mark.parametrize("moment", ["a shop with", "local, two cores", "mirror(spark", "rows are in the lake"])
def test_ctrl_c_leaves_nothing_behind(room: Room, moment: str, seconds: int) -> None:
    seen = interrupted(room, moment, "scripts/demo", seconds=seconds)
    assert seen["code"] == 130, seen
    assert seen["left"] == [], seen
    assert [name for name in seen["files"] if name not in EMPTY and KEPT_BY_JAVA not in name] == [], seen
    assert "Traceback" not in seen["text"], seen["text"]


def test_a_set_up_that_was_interrupted_goes_on(bare: Room) -> None:
    bare.add_project()
    assert bare.run("apt-get -qq update && apt-get -qq -y install python3 >/dev/null").code == 0
    seen = interrupted(bare, "installing build tools", "scripts/setup", python="python3")
    assert seen["left"] == [], seen
    proved(bare.run("scripts/demo"))


def interrupted(
    room: Room, moment: str, command: str, *, seconds: int = 0, python: str = ".venv/bin/python"
) -> dict[str, Any]:
    """Press Ctrl-C some seconds after a text was printed; what is left of the command then."""
    program = f"{python} tools/rooms/interrupted.py '{moment}' {seconds}"
    ran = room.run(f"{program} {command}", alone="setup" not in command)
    assert ran.code == 0, ran.text
    seen: dict[str, Any] = json.loads(ran.text.splitlines()[-1])
    return seen
