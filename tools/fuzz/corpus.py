"""Corpus to mutate: event groups of real servers, each with the FORMAT_DESCRIPTION for reading it.

Checksums are removed, so that a changed byte reaches the decoder. Compressed transactions are in the corpus twice:
unchanged, and inflated. Fragments of rows events are made here, because none of the servers writes them.
"""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, NamedTuple

from replica.protocol.constants import CHECKSUM_LENGTH, HEADER_LENGTH, EventType
from replica.protocol.events.binlog_file import walk
from replica.protocol.groups.groups import GroupTracker, Place
from replica.protocol.rows.rows_event import ROWS_EVENTS
from replica.rows.scan.expand import expand
from tests.kit.binlog import bodies
from tests.kit.tree import files
from tests.vectors.load import HERE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.protocol.events.decode import FormatDescriptionEvent

MAX_GROUP_BYTES = 20_000
"""Larger groups take long and show nothing that smaller ones do not."""


_HOLDS_EVENTS = (EventType.TRANSACTION_PAYLOAD, EventType.PARTIAL_ROW_DATA)


class Group(NamedTuple):
    """Events of one group, or one event that stands outside of groups; none with a checksum."""

    name: str
    events: list[bytes]
    description: FormatDescriptionEvent

    @property
    def has_rows(self) -> bool:
        return any(event[4] in ROWS_EVENTS or event[4] in _HOLDS_EVENTS for event in self.events)


def relength(event: bytes) -> bytes:
    """The event with the length that it has."""
    return event[:9] + len(event).to_bytes(4, "little") + event[13:]


class Corpus(NamedTuple):
    """All groups, shortest first; those of them with rows; the events of all."""

    groups: list[Group]
    rich: list[Group]
    events: list[bytes]

    @property
    def truncations(self) -> int:
        """How many cases `truncation` has."""
        return 2 * sum(map(len, self.events))

    def truncation(self, number: int) -> tuple[Group, list[bytes]]:
        """Every event cut at every length: with its length set to what is left and the others in place, or where the
        bytes end."""
        place, in_place = divmod(number, 2)
        for group in self.groups:
            for at, event in enumerate(group.events):
                if place < len(event):
                    cut = relength(event[:place]) if in_place and place >= HEADER_LENGTH else event[:place]
                    return group, [*group.events[:at], cut, *(group.events[at + 1 :] if in_place else ())]
                place -= len(event)
        raise IndexError(number)


def corpus() -> Corpus:
    found = groups()
    return Corpus(
        found, [group for group in found if group.has_rows], [event for group in found for event in group.events]
    )


def groups() -> list[Group]:
    """All of them, shortest first: what is small is tried often."""
    found: list[Group] = []
    for path in files(HERE, "*/*.binlog*"):
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        name = f"{path.parent.name}/{path.name}"
        for group in _of_file(name, data):
            found.append(group)
            if any(event[4] == EventType.TRANSACTION_PAYLOAD for event in group.events):
                found.append(_written_out(group))
            if any(event[4] in ROWS_EVENTS for event in group.events):
                found.append(_in_fragments(group))
    return sorted(
        (group for group in found if sum(map(len, group.events)) <= MAX_GROUP_BYTES),
        key=lambda group: sum(map(len, group.events)),
    )


def _of_file(name: str, data: bytes) -> Iterator[Group]:
    tracker = GroupTracker()
    events: list[bytes] = []
    for event in walk(data):
        trailer = CHECKSUM_LENGTH if event.description.checksum else 0
        if event.header.event_type == EventType.FORMAT_DESCRIPTION:
            # As it is: its own four bytes are there in any case.
            yield Group(name, [bytes(event.event)], event.description)
            continue
        content = bytes(event.event[: len(event.event) - trailer])
        place = tracker.feed(event.header, memoryview(content))
        if place is Place.OUTSIDE:
            yield Group(name, [relength(content)], event.description)
            continue
        events.append(relength(content))
        if place is Place.END:
            yield Group(name, events, event.description)
            events = []


def _written_out(group: Group) -> Group:
    data = bytes(expand(memoryview(b"".join(group.events)), checksum=False).data)
    events = []
    while data:
        length = int.from_bytes(data[9:13], "little")
        events.append(data[:length])
        data = data[length:]
    return Group(f"{group.name} written out", events, group.description)


def _in_fragments(group: Group, size: int = 40) -> Group:
    events: list[bytes] = []
    for event in group.events:
        if event[4] not in ROWS_EVENTS:
            events.append(event)
            continue
        head = event[:4] + bytes([EventType.PARTIAL_ROW_DATA]) + event[5:19]
        events += (relength(head + fragment) for fragment in bodies.fragments(event, size))
    return Group(f"{group.name} in fragments", events, group.description)
