"""JSON diffs: what an UPDATE changed inside a JSON column, as MySQL logs it with binlog_row_value_options=PARTIAL_JSON.

A diff is an operation, a path to one place and, but for REMOVE, a new binary value. A column holds a list of them,
applied one after the other. In: the bytes after the column's length prefix. Refused, as ProtocolError: unknown
operations, paths MySQL does not write (wildcards, ranges), and diffs that do not fit the document: then the before
image is not the row they were made for, and no after image can be told.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from replica.errors import ProtocolError
from replica.protocol.binary_json import MAX_DEPTH, Json, parse_json
from replica.protocol.wire import Buffer, Cursor

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_MOVED: Final = 1 << 28
"""Elements that array insertions and removals may move: a second's work. A statement that changes a thousand places of
an array of a hundred thousand is below it."""

_NAME: Final = re.compile(r"\.(?:(\"(?:[^\"\\]|\\.)*\")|([^\s.\[\]\"*]+))")
_INDEX: Final = re.compile(r"\[(\d{1,10})\]")


class DiffOperation(IntEnum):
    """The operations of a diff (enum_json_diff_operation)."""

    REPLACE = 0
    INSERT = 1
    REMOVE = 2


@dataclass(frozen=True, slots=True)
class JsonDiff:
    operation: DiffOperation
    path: str
    """The path as MySQL writes it: $.name."another name"[3]"""
    value: Json = None
    """The new value; None with REMOVE."""

    @property
    def legs(self) -> tuple[str | int, ...]:
        """Member names and array indexes from the root on."""
        return _legs(self.path)


def read_diffs(data: Buffer) -> tuple[JsonDiff, ...]:
    """Read the diffs of one column; none when the UPDATE left the column as it was."""
    cursor = Cursor(data)
    diffs = []
    while cursor:
        at = cursor.offset
        code = cursor.u8()
        if code > DiffOperation.REMOVE:
            raise ProtocolError(f"{code} is no operation of a JSON diff", offset=at)
        operation = DiffOperation(code)
        path = cursor.text(cursor.lenenc())
        value = None if operation is DiffOperation.REMOVE else parse_json(cursor.take(cursor.lenenc()))
        diffs.append(JsonDiff(operation, path, value))
    return tuple(diffs)


def apply_diffs(document: Json, diffs: Sequence[JsonDiff]) -> Json:
    """Apply the diffs to the document and return it; the given one may be changed on the way."""
    patient = _Document(document)
    for diff in diffs:
        if not patient.apply(diff):
            raise ProtocolError(
                f"the JSON diff {diff.operation.name} {diff.path[:80]!r} does not fit the value before it",
                hint="The row was changed by something that is not in the binlog, or the bytes are damaged.",
            )
    return patient.result()


class _Document:
    """A document while diffs are applied to it."""

    def __init__(self, document: Json) -> None:
        self._root: list[Any] = [document]
        self._unsorted: dict[int, dict[str, Json]] = {}  # objects with new members, by id
        self._moved = 0

    def apply(self, diff: JsonDiff) -> bool:
        """Apply one diff; return whether there was a place for it."""
        *parents, last = 0, *diff.legs
        place: Any = self._root
        for leg in parents:
            if not _has(place, leg):
                return False
            place = place[leg]
        if diff.operation is DiffOperation.INSERT:
            return place is not self._root and self._insert(place, last, diff.value)
        if not _has(place, last):
            return False
        if diff.operation is DiffOperation.REPLACE:
            place[last] = diff.value
            return True
        if place is self._root:
            return False
        if isinstance(place, list):
            self._move(place)
        del place[last]
        return True

    def result(self) -> Json:
        for members in self._unsorted.values():
            ordered = sorted(members.items(), key=lambda member: (len(member[0].encode()), member[0].encode()))
            members.clear()
            members.update(ordered)
        found: Json = self._root[0]
        return found

    def _insert(self, place: Any, leg: str | int, value: Json) -> bool:
        if isinstance(leg, int):
            if not isinstance(place, list):
                return False
            self._move(place)
            place.insert(leg, value)  # beyond the end is at the end, as in MySQL
            return True
        if not isinstance(place, dict) or leg in place:
            return False
        place[leg] = value
        self._unsorted[id(place)] = place
        return True

    def _move(self, place: list[Any]) -> None:
        self._moved += len(place)
        if self._moved > MAX_MOVED:
            raise ProtocolError(f"the JSON diffs of one value move more than {MAX_MOVED} elements")


def _has(place: Any, leg: str | int) -> bool:
    if isinstance(leg, int):
        return isinstance(place, list) and leg < len(place)
    return isinstance(place, dict) and leg in place


def _legs(path: str) -> tuple[str | int, ...]:
    if not path.startswith("$"):
        raise ProtocolError(f"{path[:80]!r} is no path into a JSON document")
    legs: list[str | int] = []
    at = 1
    while at < len(path):
        if found := _INDEX.match(path, at):
            legs.append(int(found[1]))
        elif found := _NAME.match(path, at):
            legs.append(found[2] if found[1] is None else _unquoted(found[1]))
        else:
            raise ProtocolError(f"{path[:80]!r} is no path into a JSON document")
        at = found.end()
        if len(legs) > MAX_DEPTH:
            raise ProtocolError(f"a path of more than {MAX_DEPTH} steps into a JSON document")
    return tuple(legs)


def _unquoted(text: str) -> str:
    try:
        name: str = json.loads(text, strict=False)
    except ValueError:
        raise ProtocolError(f"{text[:80]!r} is no member name of a JSON document") from None
    return name
