"""`explain` in binlog files: walked in the order given, and once more for the other half of an XA transaction."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from replica.dump.reading import Part
from replica.explain.found import Answer, find_partner
from replica.explain.transaction import take_apart
from replica.files.opening import STANDARD_INPUT, open_binlog
from replica.tail.search import Search

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from replica.files.keys import KeyRing
    from replica.protocol.gtid import Gtid


def explain_files(files: Sequence[str], gtid: Gtid, keys: KeyRing | None = None) -> Answer:
    """Tell all about the transaction.

    Raises:
        ConfigError: a file cannot be read.
        ProtocolError: a file is damaged before the transaction.
    """
    answer = Answer(gtid, ", ".join(files))
    search = Search(gtid)
    found = next((search.found for part in _parts(files, keys) if search.feed(part)), None)
    if found is None:
        _say_why(answer, search)
        return answer
    transaction = take_apart(found)
    if transaction.xa is not None and STANDARD_INPUT not in files:
        half = find_partner(_parts(files, keys), gtid, transaction.xa)
        answer.partner = half.partner
        if half.prepared is not None:
            transaction = take_apart(found, [half.prepared])
    answer.transaction, answer.file, answer.offset = transaction, found.name, found.piece.offset
    return answer


def _parts(files: Sequence[str], keys: KeyRing | None) -> Iterator[Part]:
    for file in files:
        name = PurePath(file).name if file != STANDARD_INPUT else "standard input"
        with open_binlog(file, keys) as binlog:
            for piece in binlog.ranges():
                if piece.whole:
                    yield Part(name, binlog, piece)


def _say_why(answer: Answer, search: Search) -> None:
    gtid = answer.gtid
    answer.reason = "not here"
    if search.other is not None:
        answer.reason = "other server"
        answer.words = (
            f"Number {gtid.seq_no} of domain {gtid.domain_id} is there, but another server's: {search.other}."
        )
    elif search.before is not None and search.after is not None:
        answer.reason = "hole"
        answer.words = f"There is no such transaction: the files go from {search.before} to {search.after}."
    elif search.before is not None:
        answer.words = f"The files end before it, with {search.before}: it is in a later file, or not yet written."
    elif search.after is not None:
        answer.words = f"The files begin after it, with {search.after}: it is in an earlier file."
    else:
        answer.reason = "domain"
        answer.words = f"The files hold nothing of domain {gtid.domain_id}."
