"""CONTRIBUTING.md's worked example: a parser and a row make a new event type known to everything that walks events."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[4]

PARSER = '''

@dataclass(frozen=True, slots=True)
class MoodEvent(Event):
    """How the server feels, which no server says."""

    mood: int


def decode_mood(header: EventHeader, body: Cursor, _description: FormatDescriptionEvent) -> MoodEvent:
    return MoodEvent(header, body.u8())
'''
ROW = '    MOOD = 173, "events.statement_events.decode_mood", Role.MEMBER, MARIADB, "Mood_log_event"\n'

# In the copy: what a decoder, the plain rule, the kernels and the page make of it, without another line of code.
CHECK = """
from replica.protocol.constants import ChecksumAlgorithm, EventType, event_name
from replica.protocol.events.binlog_file import encode_event
from replica.protocol.constants import Role
from replica.protocol.events.decode import DECODERS
from tools.pages.events import page
from replica.protocol.groups.groups import GroupTracker, Place
from replica.protocol.header import parse_header
from replica.protocol.wire import Cursor

raw = encode_event(173, b"\\x07", server_id=1, checksum=ChecksumAlgorithm.NONE)
header = parse_header(raw)
assert DECODERS[173](header, Cursor(raw, 19), None).mood == 7
assert event_name(173) == "MOOD (173)"

tracker = GroupTracker()
gtid = encode_event(EventType.GTID, bytes(13), server_id=1, checksum=ChecksumAlgorithm.NONE)
assert tracker.feed(parse_header(gtid), memoryview(gtid)) is Place.BEGIN
assert tracker.feed(header, memoryview(raw)) is Place.MEMBER
assert "| MOOD | 173 | MEMBER | `events.statement_events.decode_mood` | yes |" in page()

from replica.native.kernel_group import ROLES
from replica.relay_log.kernels import kernel_deframe
assert ROLES[173] == kernel_deframe._ROLES[173] == Role.MEMBER
print("known everywhere")
"""


def test_a_parser_and_a_row_are_all_that_a_new_type_needs(tmp_path: Path) -> None:
    for folder in ("replica", "tools/pages"):
        shutil.copytree(PROJECT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    protocol = tmp_path / "replica" / "protocol"
    parsers = protocol / "events" / "statement_events.py"
    parsers.write_text(parsers.read_text(encoding="utf-8") + PARSER, encoding="utf-8")
    table = protocol / "constants.py"
    before, last_row, after = table.read_text(encoding="utf-8").partition("    PARTIAL_ROW_DATA = ")
    table.write_text(before + ROW + last_row + after, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "kernels")}
    done = subprocess.run(
        [sys.executable, "-c", CHECK], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("known everywhere\n", 0), done.stderr
