"""`mariadb-replica explain GTID`: everything about one transaction, or why it is missing.

The search is in a relay log (--relay-dir), in binlog files, or on a primary. The exit code is 0 if the transaction was
found, else NOT_FOUND. Nothing is changed anywhere.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Final

import click

from replica.commands.arguments import LogChoice, placed
from replica.commands.dump.output import standard_output
from replica.commands.dump.text import json_line
from replica.commands.explain.answer import Page
from replica.commands.explain.look_up import Acknowledged, explain_files, explain_primary, explain_relay
from replica.commands.shared_options import Parsed, keys_option
from replica.commands.tail import lines
from replica.commands.tail.source import check_relay_directory, warnings_logger
from replica.daemon.status.record import read_status
from replica.errors import ReplicaError
from replica.protocol.gtid import BinlogPosition, Gtid
from replica.readers.rows.progress import watched
from replica.relay_log.log import RelayLog

if TYPE_CHECKING:
    from pathlib import Path

    from replica.commands.explain.answer import Answer
    from replica.readers.files.encryption import KeyRing

NOT_FOUND: Final = 3
"""Exit code for a missing transaction. The code is not that of an error, because the question was answered."""


@click.command(short_help="Everything about one transaction, or why it is missing.")
@click.argument("gtid", metavar="GTID", type=Parsed(Gtid.parse))
@click.argument("files", nargs=-1, metavar="[FILE...]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.option("--full", is_flag=True, help="All statements and events, in full.")
@click.option("--color", "--colour", "colour", type=click.Choice(["auto", "always", "never"]), default="auto",
              show_default=True)  # fmt: skip
@keys_option
@placed
def explain(
    place: LogChoice,
    *,
    gtid: Gtid,
    files: tuple[str, ...],
    as_json: bool,
    full: bool,
    colour: lines.When,
    keys: KeyRing | None,
) -> None:
    """Show one transaction: its place, writer and time, its rows and its events.

    The named binlog or relay log files are searched; without files, the relay log (--relay-dir); without both, the
    primary (--host and --user). Exit code 3 if the transaction is missing, with the reason.
    """
    answer = _answer(place, gtid, files, keys)
    with standard_output() as out:
        if as_json:
            out.write(json_line(answer.as_dict()))
        else:
            paint = lines.Colours(lines.wanted(colour, os.environ, terminal=sys.stdout.isatty()))
            for line in Page(paint, time.time(), full=full).lines(answer):
                out.write(line.encode("utf-8", "backslashreplace") + b"\n")
    if answer.transaction is None:
        raise SystemExit(NOT_FOUND)


def _answer(place: LogChoice, gtid: Gtid, files: tuple[str, ...], keys: KeyRing | None) -> Answer:
    if files:
        with watched(files) as progress:
            return explain_files(files, gtid, keys, progress.advance)
    if place.relay_dir is None:
        return explain_primary(place.config(), gtid, warnings_logger())
    check_relay_directory(place.relay_dir)
    return explain_relay(RelayLog(place.relay_dir), gtid, _acknowledged(place.relay_dir))


def _acknowledged(directory: Path) -> Acknowledged | None:
    """Return the daemon's last acknowledged place; None without a status record that this version can read."""
    try:
        status = read_status(directory)
    except ReplicaError:
        return None
    if status is None or not status.acks.acknowledged:
        return None
    received = BinlogPosition(status.position.primary_file, status.position.primary_position)
    return Acknowledged(status.connection.primary_server_id, BinlogPosition.parse(status.acks.acknowledged), received)
