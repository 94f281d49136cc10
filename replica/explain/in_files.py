"""`explain` in binlog files: a search in the given order, and a second one for the other half of an XA transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.explain.found import Answer
from replica.explain.look_up import look_up, say_other_server
from replica.log_reader.in_files import FilesReader
from replica.relay_log.groups.gtid_search import GtidSearch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from replica.files.binlog import BinlogFile
    from replica.files.keys import KeyRing
    from replica.protocol.gtid import Gtid


def explain_files(
    files: Sequence[str],
    gtid: Gtid,
    keys: KeyRing | None = None,
    passed: Callable[[BinlogFile, int], None] = lambda _file, _offset: None,
) -> Answer:
    """Return all about the transaction.

    Args:
        files: names of the files.
        gtid: the transaction.
        keys: keys of encrypted files.
        passed: called with a file and the offset that the search has reached.

    Raises:
        ConfigError: a file cannot be read.
        ProtocolError: a file is damaged before the transaction.
    """
    answer, search = Answer(gtid, ", ".join(files)), GtidSearch(gtid)
    if look_up(FilesReader(files, keys, passed), search, answer) is None:
        _say_why(answer, search)
    return answer


def _say_why(answer: Answer, search: GtidSearch) -> None:
    if say_other_server(answer, search):
        return
    answer.reason = "not here"
    if search.before is not None and search.after is not None:
        answer.reason = "hole"
        answer.words = f"There is no such transaction: the files go from {search.before} to {search.after}."
    elif search.before is not None:
        answer.words = f"The files end before it, with {search.before}: it is in a later file, or not yet written."
    elif search.after is not None:
        answer.words = f"The files begin after it, with {search.after}: it is in an earlier file."
    else:
        answer.reason = "domain"
        answer.words = f"The files hold nothing of domain {search.gtid.domain_id}."
