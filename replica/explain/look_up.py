"""Search for one transaction in a log on disk, and its analysis, with the other half of an XA transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.explain.found import find_partner
from replica.explain.transaction import take_apart

if TYPE_CHECKING:
    from replica.explain.found import Answer
    from replica.log_reader.part import Part
    from replica.log_reader.reader import StoredLog
    from replica.relay_log.groups.gtid_search import GtidSearch


def look_up(log: StoredLog, search: GtidSearch, answer: Answer) -> Part | None:
    """Enter the transaction that `search` is for; return its part, or None if the log does not contain it."""
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


def say_other_server(answer: Answer, search: GtidSearch) -> bool:
    """Enter that another server used the number, and return True, if one did."""
    if search.other is None:
        return False
    answer.reason = "other server"
    answer.words = (
        f"Number {search.gtid.seq_no} of domain {search.gtid.domain_id} is there, but belongs to another server: "
        f"{search.other}."
    )
    return True
