"""`mariadb-replica position`: convert a file and offset, a time or a transaction to a GTID position.

The search is in binlog files, in a relay log (--relay-dir), or on a primary. The result is valid for startingPosition
of the Spark source, `tail --from` and a replica's gtid_slave_pos. Nothing is changed anywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from replica.commands.arguments import LogChoice, placed
from replica.commands.dump.text import json_line
from replica.commands.outcome import standard_output
from replica.commands.shared_options import Parsed, keys_option
from replica.commands.tail.source import check_relay_directory, warnings_logger
from replica.errors import ConfigError
from replica.options.values import instant, shown_instant
from replica.protocol.gtid import BinlogPosition, Gtid
from replica.protocol.plain_text import one_line
from replica.readers.log.in_files import FilesReader
from replica.readers.log.in_relay_log import RelayLogReader
from replica.readers.primary import PrimaryReader
from replica.readers.rows.progress import watched
from replica.relay_log.log import RelayLog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.readers.files.encryption import KeyRing
    from replica.readers.log.reader import FoundPosition, LogReader
    from replica.readers.rows.progress import DumpProgress

Target = BinlogPosition | Gtid | int
"""A place, a transaction, or a time."""


@click.command(short_help="A file and offset, or a time, as a GTID position.")
@click.argument("files", nargs=-1, metavar="[FILE...]")
@click.option(
    "--file-pos",
    metavar="FILE:POS",
    type=Parsed(BinlogPosition.parse),
    help="As SHOW MASTER STATUS or a backup tool prints it.",
)
@click.option(
    "--time",
    "moment",
    metavar="TIME",
    type=Parsed(instant),
    help="Before the first transaction committed at this time or later: 2026-11-21T20:00:00Z.",
)
@click.option(
    "--gtid", metavar="GTID", type=Parsed(Gtid.parse), help="After this transaction, in all domains: 0-1-4711."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@keys_option
@placed
def position(
    place: LogChoice,
    *,
    files: tuple[str, ...],
    file_pos: BinlogPosition | None,
    moment: int | None,
    gtid: Gtid | None,
    as_json: bool,
    keys: KeyRing | None,
) -> None:
    """Show the GTID position of a file and offset, a time, or a transaction.

    The named binlog files are searched; without files, the relay log (--relay-dir); without both, the primary (--host
    and --user). For a time, the position is before the first transaction, in binlog order, that was committed then or
    later. For an offset inside a transaction, it is before this transaction.
    """
    target = _only_target(file_pos, moment, gtid)
    with watched(files) as progress:
        found = _find(_reader(place, files, keys, progress), target)
    with standard_output() as out:
        if as_json:
            out.write(json_line(_as_dict(found)))
        else:
            for line in _lines(found):
                out.write(one_line(line).encode("utf-8", "backslashreplace") + b"\n")


def _only_target(*given: Target | None) -> Target:
    named = [value for value in given if value is not None]
    if len(named) != 1:
        raise ConfigError("give exactly one of --file-pos, --time and --gtid.")
    return named[0]


def _find(reader: LogReader, target: Target) -> FoundPosition:
    if isinstance(target, BinlogPosition):
        return reader.at_place(target)
    return reader.after_group(target) if isinstance(target, Gtid) else reader.at_time(target)


def _reader(place: LogChoice, files: tuple[str, ...], keys: KeyRing | None, progress: DumpProgress) -> LogReader:
    if files:
        return FilesReader(files, keys, progress.advance)
    if place.relay_dir is None:
        return PrimaryReader(place.config(), warnings_logger())
    check_relay_directory(place.relay_dir)
    return RelayLogReader(RelayLog(place.relay_dir))


def _as_dict(found: FoundPosition) -> dict[str, object]:
    following = found.next
    return {
        "position": str(found.position),
        "inside": found.inside,
        "next": None
        if following is None
        else {
            "gtid": str(following.gtid),
            "time": None if following.time_s is None else shown_instant(following.time_s),
            "place": None if following.place is None else str(following.place),
        },
    }


def _lines(found: FoundPosition) -> Iterator[str]:
    yield f"{found.position}" if found.position else "(the empty position: before the first transaction of all)"
    following = found.next
    if following is None:
        yield "  nothing follows yet"
        return
    when = "" if following.time_s is None else f", committed {shown_instant(following.time_s)}"
    where = "" if following.place is None else f", at {following.place}"
    yield f"  followed by {following.gtid}{when}{where}"
    if found.inside:
        yield "  The place is inside that transaction or directly before it: the position is before that transaction."
