"""`explain` in a relay log: a binary search finds the transaction, and the sidecar files give facts about it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from replica.explain.found import Answer
from replica.explain.look_up import look_up, say_other_server
from replica.log_reader.in_relay_log import RelayLogReader
from replica.protocol.gtid import GtidPosition
from replica.relay_log.files.index import last_entry
from replica.relay_log.groups.gtid_search import GtidSearch
from replica.relay_log.location import RelayLocation, index_path, relay_number

if TYPE_CHECKING:
    from replica.protocol.gtid import BinlogPosition, Gtid
    from replica.relay_log.location import RelayHead
    from replica.relay_log.log import RelayLog


class Acknowledged(NamedTuple):
    """The last place of a primary's binlog that a replica acknowledged.

    `received` is the replica's place at that time.
    """

    server_id: int
    position: BinlogPosition
    received: BinlogPosition

    def was_told_of(self, end: BinlogPosition) -> bool | None:
        """Return True if a transaction that ends at `end` was acknowledged; None if it is later than `received`."""
        if self.position >= end:
            return True
        return False if self.received >= end else None


def explain_relay(log: RelayLog, gtid: Gtid, acknowledged: Acknowledged | None) -> Answer:
    """Return all about the transaction.

    `acknowledged` is used only if the transaction came from the same primary.

    Raises:
        RelayError: the log cannot be read.
        DataLossError: its file was purged while it was read.
    """
    answer = Answer(gtid, str(log.directory))
    head = log.head()
    if head is None or not head.location.offset:
        answer.reason, answer.words = "empty", "The relay log is empty: its replica has received nothing yet."
        return answer
    search = GtidSearch(gtid)
    part = look_up(RelayLogReader(log), search, answer)
    if part is None:
        _say_why(answer, search, head, log.first_position() or GtidPosition())
        return answer
    number = relay_number(Path(part.name))
    end = log.at(RelayLocation(number, part.piece.end)).primary
    answer.primary_file, answer.primary_end = end.file, end.position
    answer.on_disk = True if last_entry(index_path(log.directory, number)) is not None else None
    if acknowledged is not None and acknowledged.server_id == part.binlog.description.header.server_id:
        answer.acknowledged = acknowledged.was_told_of(end)
        answer.on_disk = answer.on_disk or (True if answer.acknowledged else None)
    return answer


def _say_why(answer: Answer, search: GtidSearch, head: RelayHead, first: GtidPosition) -> None:
    """Enter why there is no such transaction. Of several reasons, the first that holds is used."""
    gtid = answer.gtid
    begins, ends = first.get(gtid.domain_id), head.position.get(gtid.domain_id)
    if ends is None:
        domains = ", ".join(str(known.domain_id) for known in head.position)
        answer.reason = "domain"
        answer.words = f"The log has no domain {gtid.domain_id}; it has {domains} and is at {head.position}."
    elif say_other_server(answer, search):
        return
    elif gtid.seq_no > ends.seq_no:
        behind = gtid.seq_no - ends.seq_no
        answer.reason = "not yet"
        answer.words = f"Not yet: the log is at {ends}, which is {behind:,} before it. It may also never arrive."
    elif begins is not None and gtid.seq_no <= begins.seq_no:
        answer.reason = "purged"
        answer.words = (
            f"No longer, or never: the log begins after {begins}. Earlier ones were purged, or were received "
            "before this log began. The primary may still have it: ask it with --direct."
        )
    else:
        before = search.before or begins
        neighbours = f"from {before} to {search.after}" if before else f"begins with {search.after}"
        answer.reason = "hole"
        answer.words = (
            f"There is no such transaction: the log goes {neighbours}. The primary skipped the number, or does not "
            "send it (a filter, or a number that was set by hand)."
        )
