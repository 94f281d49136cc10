"""`mariadb-replica explain GTID`: everything about one transaction, or why it is missing.

`explain_files`, `explain_relay` and `explain_primary` search binlog files, a relay log (--relay-dir) or a primary, and
return an `Answer`. If several reasons explain a missing transaction, the answer has the first of them. The exit code is
0 if the transaction was found, else NOT_FOUND. Nothing is written, except the temporary relay log of a search on a
primary.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from replica.commands.arguments import LogChoice, placed
from replica.commands.dump.text import json_line
from replica.commands.explain.answer import Answer, Page, find_partner
from replica.commands.explain.transaction import take_apart
from replica.commands.outcome import standard_output
from replica.commands.shared_options import Parsed, keys_option
from replica.commands.tail import lines
from replica.commands.tail.source import check_relay_directory, warnings_logger
from replica.daemon.status.record import read_status
from replica.errors import DisconnectedError, PositionLostError, ReplicaError
from replica.live.embedded import EmbeddedReplica
from replica.protocol.gtid import BinlogPosition, Gtid, GtidPosition
from replica.readers.log.in_files import FilesReader
from replica.readers.log.in_relay_log import RelayLogReader
from replica.readers.primary import temporary_log
from replica.readers.rows.progress import watched
from replica.relay_log.files.index import last_entry
from replica.relay_log.groups.groups import GtidSearch
from replica.relay_log.location import RelayLocation, index_path, relay_number
from replica.relay_log.log import RelayLog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from structlog.typing import FilteringBoundLogger

    from replica.options.config import ReplicaConfig
    from replica.readers.files.binlog import BinlogFile
    from replica.readers.files.encryption import KeyRing
    from replica.readers.log.reader import Part, StoredLog
    from replica.relay_log.location import RelayHead


def find_transaction(log: StoredLog, search: GtidSearch, answer: Answer) -> Part | None:
    """Add the transaction of `search` to `answer`; return its part, or None if the log does not contain it."""
    part = log.find(search)
    if part is None:
        return None
    transaction = take_apart(part)
    if transaction.xa is not None:
        half = find_partner(log.xa_parts(), search.gtid, transaction.xa)
        answer.partner = half.partner
        if half.prepared is not None:
            transaction = take_apart(part, [half.prepared])
    answer.transaction, answer.file, answer.offset = transaction, part.name, part.piece.offset
    return part


def explain_other_server(answer: Answer, search: GtidSearch) -> bool:
    """Return True if another server used the sequence number, and add that to `answer`."""
    if search.other is None:
        return False
    answer.reason = "other server"
    answer.explanation = (
        f"Number {search.gtid.seq_no} of domain {search.gtid.domain_id} is there, but belongs to another server: "
        f"{search.other}."
    )
    return True


def explain_files(
    files: Sequence[str],
    gtid: Gtid,
    keys: KeyRing | None = None,
    on_progress: Callable[[BinlogFile, int], None] = lambda _file, _offset: None,
) -> Answer:
    """Search for a transaction, and return all facts about it.

    Args:
        files: names of the files.
        gtid: the transaction.
        keys: keys of encrypted files.
        on_progress: called with a file and the offset that the search has reached.

    Raises:
        ConfigError: a file cannot be read.
        ProtocolError: a file is damaged before the transaction.
    """
    answer, search = Answer(gtid, ", ".join(files)), GtidSearch(gtid)
    if find_transaction(FilesReader(files, keys, on_progress), search, answer) is None:
        _explain_missing_in_files(answer, search)
    return answer


def _explain_missing_in_files(answer: Answer, search: GtidSearch) -> None:
    if explain_other_server(answer, search):
        return
    answer.reason = "not here"
    if search.before is not None and search.after is not None:
        answer.reason = "hole"
        answer.explanation = f"There is no such transaction: the files go from {search.before} to {search.after}."
    elif search.before is not None:
        answer.explanation = (
            f"The files end before it, with {search.before}: it is in a later file, or not yet written."
        )
    elif search.after is not None:
        answer.explanation = f"The files begin after it, with {search.after}: it is in an earlier file."
    else:
        answer.reason = "domain"
        answer.explanation = f"The files hold nothing of domain {search.gtid.domain_id}."


class Acknowledged(NamedTuple):
    """The last place of a primary's binlog that a replica acknowledged.

    `received` is the replica's place at that time.
    """

    server_id: int
    position: BinlogPosition
    received: BinlogPosition

    def covers(self, end: BinlogPosition) -> bool | None:
        """Return True if a transaction that ends at `end` was acknowledged; None if it is later than `received`."""
        if self.position >= end:
            return True
        return False if self.received >= end else None


def explain_relay(log: RelayLog, gtid: Gtid, acknowledged: Acknowledged | None) -> Answer:
    """Search for a transaction, and return all facts about it.

    `acknowledged` is used only if the transaction came from the same primary.

    Raises:
        RelayError: the log cannot be read.
        DataLossError: its file was purged while it was read.
    """
    answer = Answer(gtid, str(log.directory))
    head = log.head()
    if head is None or not head.location.offset:
        answer.reason, answer.explanation = "empty", "The relay log is empty: its replica has received nothing yet."
        return answer
    search = GtidSearch(gtid)
    part = find_transaction(RelayLogReader(log), search, answer)
    if part is None:
        _explain_missing(answer, search, head, log.first_position() or GtidPosition())
        return answer
    number = relay_number(Path(part.name))
    end = log.at(RelayLocation(number, part.piece.end)).primary
    answer.primary_file, answer.primary_end = end.file, end.position
    answer.on_disk = True if last_entry(index_path(log.directory, number)) is not None else None
    if acknowledged is not None and acknowledged.server_id == part.binlog.description.header.server_id:
        answer.acknowledged = acknowledged.covers(end)
        answer.on_disk = answer.on_disk or (True if answer.acknowledged else None)
    return answer


def _explain_missing(answer: Answer, search: GtidSearch, head: RelayHead, first: GtidPosition) -> None:
    """Add the reason for the missing transaction to `answer`. The first reason that holds is used."""
    gtid = answer.gtid
    begins, ends = first.get(gtid.domain_id), head.position.get(gtid.domain_id)
    if ends is None:
        domains = ", ".join(str(known.domain_id) for known in head.position)
        answer.reason = "domain"
        answer.explanation = f"The log has no domain {gtid.domain_id}; it has {domains} and is at {head.position}."
    elif explain_other_server(answer, search):
        return
    elif gtid.seq_no > ends.seq_no:
        distance = gtid.seq_no - ends.seq_no
        answer.reason = "not yet"
        answer.explanation = (
            f"Not yet: the log is at {ends}, which is {distance:,} before it. It may also never arrive."
        )
    elif begins is not None and gtid.seq_no <= begins.seq_no:
        answer.reason = "purged"
        answer.explanation = (
            f"No longer, or never: the log begins after {begins}. Earlier ones were purged, or were received "
            "before this log began. The primary may still have it: ask it with --direct."
        )
    else:
        before = search.before or begins
        neighbours = f"from {before} to {search.after}" if before else f"begins with {search.after}"
        answer.reason = "hole"
        answer.explanation = (
            f"There is no such transaction: the log goes {neighbours}. The primary skipped the number, or does not "
            "send it (a filter, or a number that was set by hand)."
        )


# The other domains start at their ends, so that the primary sends little before the searched transaction.


WAIT_S: Final = 60.0
"""Maximum wait in seconds. The primary searches a file of 1 GB for seconds, and a transaction of some GB takes as long
to arrive.
"""


def explain_primary(config: ReplicaConfig, gtid: Gtid, log: FilteringBoundLogger) -> Answer:
    """Search for a transaction, and return all facts about it.

    Raises:
        ReplicaError: the primary cannot be reached, or does not let us replicate.
        DisconnectedError: the primary did not send the transaction within WAIT_S.
    """
    where = ", ".join(map(str, config.endpoints))
    with (
        tempfile.TemporaryDirectory(prefix="mariadb-replica-") as folder,
        contextlib.closing(EmbeddedReplica(config, Path(folder), log=log)) as asking,
    ):
        latest, first = asking.server_position(), asking.earliest_position()
    answer = Answer(gtid, where)
    ends, begins = latest.get(gtid.domain_id), first.get(gtid.domain_id)
    if ends is None:
        answer.reason, answer.explanation = "domain", f"{where} has no domain {gtid.domain_id}; it is at {latest}."
    elif gtid.seq_no > ends.seq_no:
        answer.reason, answer.explanation = "not yet", f"Not yet: {where} is at {ends}."
    elif begins is not None and gtid.seq_no <= begins.seq_no:
        answer.reason, answer.explanation = "purged", f"Purged: the binlogs of {where} begin after {begins}."
    if answer.reason is not None:
        return answer
    before = [known for known in latest if known.domain_id != gtid.domain_id]
    if gtid.seq_no > 1:
        before.append(gtid._replace(seq_no=gtid.seq_no - 1))
    try:
        return _fetch(config, GtidPosition(tuple(before)), gtid, log, where)
    except PositionLostError as error:
        answer.reason = "other server"
        answer.explanation = f"{where} has no transaction of server {gtid.server_id} there. It says: {error.message}"
        return answer


def _fetch(config: ReplicaConfig, start: GtidPosition, gtid: Gtid, log: FilteringBoundLogger, where: str) -> Answer:
    with temporary_log(config, start, log, gtid_strict_mode=False) as own:
        replica = own.replica
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            head = replica.head()
            reached = head.position.get(gtid.domain_id)
            if head.location.offset and reached is not None and reached.seq_no >= gtid.seq_no:
                answer = explain_relay(own.log, gtid, None)
                _without_our_file(answer, where)
                return answer
            replica.wait_beyond(head.location, deadline - time.monotonic())
    raise DisconnectedError(
        f"{where} did not send {gtid} within {WAIT_S:.0f} s.", hint="Its network is slow, or the transaction is huge."
    )


def _without_our_file(answer: Answer, where: str) -> None:
    """Remove the facts about the temporary log. Offsets of events then count from the start of the transaction."""
    if answer.transaction is not None:
        events = answer.transaction.events
        answer.transaction.events = [one._replace(offset=one.offset - answer.offset) for one in events]
    answer.where, answer.file, answer.offset, answer.on_disk = where, "", 0, None


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
