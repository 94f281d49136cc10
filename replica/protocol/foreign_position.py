"""Recognise a place in a log that is written in another way than MariaDB's GTID positions, and say how to convert it.

In: what was given for a GTID position. Out: words that go behind it in a message, with the command that tells the
position; empty for what is none of these: a file and offset, as SHOW MASTER STATUS and backups print them; a GTID set
of MySQL; JSON, as Spark's checkpoints and Debezium's offsets are.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

_FILE_AND_OFFSET: Final = re.compile(r"(?P<file>[^\s,:/\\]+\.\d{6,})\s*[:,\s]\s*(?P<offset>\d+)")
_FILE: Final = re.compile(r"[^\s,:/\\]+\.\d{6,}")
_UUID: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}(?::|$)", re.IGNORECASE)
_MARIADB: Final = re.compile(r"\d{1,10}-\d{1,10}-\d{1,20}(?:,\d{1,10}-\d{1,10}-\d{1,20})*")
_MAX_JSON: Final = 64 << 10
"""An offset has some kilobytes; what is longer is not worth a reading."""


def foreign_position(text: str) -> str:
    """Return the end of a sentence that begins with the text, such as "is a file and an offset: …"; '' where none
    fits.
    """
    text = text.strip()
    if match := _FILE_AND_OFFSET.fullmatch(text):
        return f"is a binlog file and an offset in it: {_command(match['file'], match['offset'])}"
    if _FILE.fullmatch(text):
        return f"is the name of a binlog file: {_command(text, '4')}"
    if _UUID.match(text):
        return (
            "is a GTID set of MySQL, and MariaDB's are domain-server-sequence: `mariadb-replica position --file-pos "
            "FILE:POS` or `--time TIME` tells the position of the same place on a MariaDB server"
        )
    if text.startswith("{") and len(text) <= _MAX_JSON:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return ""
        return _of_json(value)
    return ""


def _of_json(value: dict[str, Any]) -> str:
    """Recognise an offset of a checkpoint (gtid), or of Debezium (gtids, or file and pos)."""
    for name in ("gtid", "gtids"):
        gtid = value.get(name)
        if isinstance(gtid, str) and _MARIADB.fullmatch(gtid):
            return f"is JSON, and the GTID position in it is {gtid}: give that alone"
    file, offset = value.get("file"), value.get("pos", value.get("position"))
    if isinstance(file, str) and isinstance(offset, int) and _FILE.fullmatch(file):
        return f"is JSON with a binlog file and an offset in it: {_command(file, str(offset))}"
    return "is JSON, with no GTID position in it: `mariadb-replica position --file-pos FILE:POS` tells one"


def _command(file: str, offset: str) -> str:
    return f"`mariadb-replica position --file-pos {file}:{offset}` tells its GTID position"
