"""Rewriting of row images that kernels cannot read in their logged form.

`PlainImages` undoes three encodings, event by event. With log_bin_compress, all images of an event are one compressed
block. COMPRESSED columns and MySQL's JSON become plain values after a length of four bytes. MySQL's PARTIAL_UPDATE_ROWS
has differences of JSON values. The result is the same scan with other event records, whose `images` and `end` point
into an `Arena` outside of the range. The arena holds ARENA_BYTES, or one larger event, so the worklist is processed in
slices. Errors: data that cannot be inflated or parsed, images that do not fit their table map, and an event that would
exceed MAX_IMAGES_BYTES.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from replica.errors import ProtocolError
from replica.native.arrays import address
from replica.protocol.compression import inflate
from replica.protocol.mysql.partial_update import apply_partial_update
from replica.protocol.wire import is_set
from replica.rows.decode import records as d
from replica.rows.decode.kernels.kernel_images import GROW, PieceRecord, find_values, number_choices
from replica.rows.decode.writers import DAMAGED, image_fault, run_fault
from replica.rows.scan import records as r
from replica.rows.scan.records import EventRecord
from replica.rows.tables.plan import PREPARED_PREFIX
from replica.rows.types.arrow_arrays import array_of, array_of_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from replica.native.record import Records
    from replica.protocol.wire import Buffer
    from replica.rows.decode.slots import SlotTable
    from replica.rows.scan.scan import Scan
    from replica.rows.tables.layout import StoredColumns

# Twice the size of a batch (DecodeOptions.batch_bytes), because the end of a slice cuts a batch short. The images
# should still be in the processor's cache when they are decoded.
ARENA_BYTES: Final = 4 << 20

# The limit of 32-bit offsets in Arrow columns, which will hold the values.
MAX_IMAGES_BYTES: Final = (1 << 31) - 1

_FIRST_PIECES: Final = 1024
_CHUNK: Final = 1024  # events whose records are copied out of numpy at once
_FIELDS: Final = ("images", "end", "form", "slot")  # of an event to prepare


class Arena:
    """Memory for plain images, reused for every slice; an event that does not fit keeps its own memory."""

    def __init__(self, size: int = ARENA_BYTES) -> None:
        self._size = size
        self._memory: memoryview | None = None
        self._address = 0
        self._large: npt.NDArray[np.uint8] | None = None
        self.used = 0

    def reset(self) -> None:
        self.used = 0
        self._large = None

    @property
    def full(self) -> bool:
        return self.used >= self._size or self._large is not None

    def put(self, images: Buffer) -> int:
        """Copy the images into the arena, or keep them in their own memory; return their address."""
        if self._memory is None:
            memory = np.empty(self._size, np.uint8)
            self._memory, self._address = memory.data, address(memory)
        start, end = self.used, self.used + len(images)
        if end > self._size:
            self._large = np.frombuffer(images, np.uint8)
            return address(self._large)
        self._memory[start:end] = images
        self.used = end
        return self._address + start


class ImageFault(NamedTuple):
    """Number of the event group whose images cannot be rewritten, and the error."""

    group: int
    error: ProtocolError


class PlainImages:
    """The images of one worklist. `found` is the scan to decode; `advance` rewrites the next slice.

    Rewriting stops at images that cannot be rewritten, with their error in `fault`. The caller must handle the slices
    before the fault first.
    """

    def __init__(
        self,
        found: Scan,
        slots: SlotTable,
        work: npt.NDArray[np.uint32],
        arena: Arena,
        *,
        walk_only: bool = False,
        lengths: npt.NDArray[np.int64] | None = None,
    ) -> None:
        """Prepare a worklist.

        Args:
            found: The scan of the range.
            slots: The tables of its slots.
            work: uint32 numbers of rows events.
            arena: Memory for the plain images.
            walk_only: True if rows are only counted, so values may keep their stored form.
            lengths: int64 per event of the range, the bytes of its plain images to decode. None for all.
        """
        self._slots = slots
        self._work = work
        self._arena = arena
        self._stored = {} if walk_only else slots.stored()
        unplain = self._unplain(found.events)
        self._todo = np.flatnonzero(unplain)
        self._lengths = lengths
        self.fault: ImageFault | None = None
        self._next = 0  # in `_todo`
        changed = len(self._todo) or lengths is not None
        self.found = replace(found, events=found.events.copy()) if changed else found
        if lengths is not None:
            plain = work[~unplain]
            start, end = (found.events[field][plain] for field in ("images", "end"))
            self.found.events["end"][plain] = start + np.minimum(end - start, lengths[plain])
        self._words = _event_words(self._work, self._todo, self.found.events)
        self._data = found.data.data

    def _unplain(self, events: Records) -> npt.NDArray[np.bool_]:
        unplain: npt.NDArray[np.bool_] = events["form"][self._work] != r.FORM_PLAIN
        if self._stored:
            unplain |= np.isin(events["slot"][self._work], list(self._stored))
        return unplain

    def advance(self) -> int:
        """Rewrite the next slice, in place of the previous one; return the index in the worklist after it."""
        self._arena.reset()
        first, arena = self._next, self._arena
        starts: list[int] = []
        sizes: list[int] = []
        while self._next < len(self._todo) and not arena.full and self.fault is None:
            words = next(self._words)
            try:
                images = self._plain(*words)
            except ProtocolError as error:
                self.fault = ImageFault(int(self.found.events["group"][words[0]]), error)
                break
            starts.append(arena.put(images))
            sizes.append(len(images))
            self._next += 1
        if starts:
            numbers = self._work[self._todo[first : self._next]]
            begin = np.array(starts, np.int64) - address(self.found.data)
            self.found.events["images"][numbers] = begin
            length = np.array(sizes, np.int64)
            if self._lengths is not None:
                length = np.minimum(length, self._lengths[numbers])
            self.found.events["end"][numbers] = begin + length
        return int(self._todo[self._next]) if self._next < len(self._todo) else len(self._work)

    def _offset(self, event: Records) -> int:
        return self.found.origin(int(event["start"]))

    def _plain(self, number: int, start: int, end: int, form: int, slot: int) -> Buffer:
        images: Buffer = self._data[start:end]
        event = self.found.events[number, ...]  # a view, not a copy: a kernel takes its address
        try:
            if form == r.FORM_COMPRESSED:
                images = inflate(images)
            elif form == r.FORM_PARTIAL:
                return self._update(images, event, slot)
        except ProtocolError as error:
            raise _located(error, self._slots.name(slot), self._offset(event)) from None
        stored = self._stored.get(slot)
        return images if stored is None else self._rewritten(images, event, slot, stored)

    def _update(self, images: Buffer, event: Records, slot: int) -> bytes:
        columns = self._slots.table(slot).table_map.columns
        before, after, width = (int(event[field]) for field in ("before", "after", "width"))
        if width != len(columns):
            raise image_fault(d.BAD_WIDTH, self._slots, slot, offset=self._offset(event))
        data, bitmap = self._data, (width + 7) // 8
        stored = self._stored.get(slot)
        return apply_partial_update(
            images,
            bytes(data[before : before + bitmap]),
            bytes(data[after : after + bitmap]),
            columns,
            wanted=stored.unpack.keys() if stored else (),
        )

    def _rewritten(self, images: Buffer, event: Records, slot: int, stored: StoredColumns) -> bytes:
        """Return the images with the values of the stored columns in plain form, each after a length of four bytes."""
        view = memoryview(images)
        parts: list[Buffer] = []
        done = size = 0
        for length, value, end, column in self._pieces(view, event, slot, stored):
            try:
                plain = stored.unpack[column](view[value:end])
            except ProtocolError as error:
                name = f"column {self._slots.column_name(slot, column)} of {self._slots.name(slot)}"
                raise _located(error, name, self._offset(event)) from None
            size += len(plain)
            if size > MAX_IMAGES_BYTES - len(view):
                raise ProtocolError(
                    f"the values of a rows event of {self._slots.name(slot)} take more than {MAX_IMAGES_BYTES} bytes",
                    offset=self._offset(event),
                    hint="Leave its compressed columns, or the table, out of the selection.",
                )
            parts += (view[done:length], len(plain).to_bytes(PREPARED_PREFIX, "little"), plain)
            done = end
        parts.append(view[done:])
        return b"".join(parts)

    def _pieces(
        self, images: memoryview, event: Records, slot: int, stored: StoredColumns
    ) -> list[tuple[int, int, int, int]]:
        source = np.frombuffer(images, np.uint8)
        capacity, count = _FIRST_PIECES, GROW
        while count == GROW:
            pieces = np.empty(capacity, PieceRecord.dtype)
            count = find_values(
                address(self.found.data),
                address(event),
                address(source),
                len(source),
                len(stored.marks),
                address(stored.widths),
                address(stored.marks),
                address(pieces),
                capacity,
            )
            capacity *= 8
        if count < 0:
            raise image_fault(-count, self._slots, slot, offset=self._offset(event))
        found: list[tuple[int, int, int, int]] = pieces[:count].tolist()
        return found


def _event_words(work: npt.NDArray[np.uint32], todo: npt.NDArray[np.intp], events: Records) -> Iterator[list[int]]:
    """Yield number, `images`, `end`, `form` and `slot` of each event to rewrite.

    The generator must not refer to PlainImages, which holds it: a reference cycle would keep the range until garbage
    collection.
    """
    for first in range(0, len(todo), _CHUNK):
        numbers = work[todo[first : first + _CHUNK]]
        fields = (events[field][numbers] for field in _FIELDS)
        yield from np.column_stack((numbers, *fields)).tolist()


def _located(error: ProtocolError, where: str, offset: int) -> ProtocolError:
    message = error.placeless
    return type(error)(
        message if message.startswith(where) else f"{where}: {message}",
        offset=offset,
        hint=error.hint or DAMAGED,
    )


# The kernel writes its results into an int64 array. Images that it cannot walk raise an error with offset and column.


def run_over_images(
    kernel: Callable[[int, int, int, int, int, int, int], int],
    found: Scan,
    slots: SlotTable,
    work: npt.NDArray[np.uint32],
    results: npt.NDArray[np.int64],
    *,
    walk_only: bool,
) -> None:
    """Run `kernel(data, events, work, work_size, slots, results, run)` over the worklist.

    Args:
        kernel: The compiled function.
        found: The scan of the range.
        slots: The tables of its slots.
        work: uint32 numbers of rows events.
        results: int64 array that the kernel writes.
        walk_only: True if the kernel uses only the lengths of values.

    Raises:
        ProtocolError: Images that do not fit their table map, or cannot be inflated.
    """
    slots.load(found, work, walk_only=walk_only)
    images = PlainImages(found, slots, work, Arena(), walk_only=walk_only)
    found = images.found
    run = np.zeros((), d.RunState.dtype)
    done = 0
    while done < len(work):
        part = work[done : images.advance()]
        if not len(part) and images.fault is not None:
            raise images.fault.error
        done += len(part)
        status = kernel(
            address(found.data),
            address(found.events),
            address(part),
            len(part),
            address(slots.records),
            address(results),
            address(run),
        )
        if status != d.DONE:
            raise run_fault(status, run, found, slots)


# `AbsentColumns` makes the ListArrays of a `ChangeBatch`, one per side; None if all images are whole. A kernel numbers
# the rows events by table map and bitmap once per range, so Python handles each distinct bitmap once.


NAMES: Final = pa.list_(pa.string())


class AbsentColumns:
    """The lists of one range. `names(slot)` returns the output name of each wire column of a slot."""

    def __init__(self, found: Scan, names: Callable[[int], Sequence[str | None]]) -> None:
        self._found = found
        self._names = names
        self.any = not found.events["whole"].all()  # if False, callers skip the other methods
        self._choices: dict[str, tuple[npt.NDArray[np.int32], list[list[str] | None]]] = {}

    def before(self, events: npt.NDArray[np.int32], rows: npt.NDArray[np.bool_]) -> pa.ListArray | None:
        """List the columns that the before images of these rows lack.

        Args:
            events: int32 event number per row.
            rows: Mask of the rows that have a before image; other rows are NULL.

        Returns:
            None if no image lacks a column.
        """
        return self._lists(events, rows, np.zeros(len(rows), np.bool_))

    def after(self, events: npt.NDArray[np.int32], rows: npt.NDArray[np.bool_]) -> pa.ListArray | None:
        """List the columns that the after images of these rows lack; the image of an INSERT is an after image."""
        return self._lists(events, rows, rows)

    def flat(self, events: npt.NDArray[np.int32], second: npt.NDArray[np.bool_]) -> pa.ListArray | None:
        """List the columns that each row's single image lacks; `second` marks the after images of updates."""
        return self._lists(events, np.ones(len(second), np.bool_), second)

    def _lists(
        self, events: npt.NDArray[np.int32], rows: npt.NDArray[np.bool_], second: npt.NDArray[np.bool_]
    ) -> pa.ListArray | None:
        before, before_names = self._of("before")
        after, after_names = self._of("after")  # events with one image per row have one bitmap
        taken = np.where(second, after[events] + len(before_names), before[events])
        taken[~rows | (np.where(second, after[events], before[events]) < 0)] = -1
        names = [*before_names, *after_names]
        partial = np.array([*(name is not None for name in names), False], np.bool_)
        if not partial[taken].any():
            return None
        return array_of_values(names, NAMES).take(array_of(taken, taken < 0))

    def _of(self, field: str) -> tuple[npt.NDArray[np.int32], list[list[str] | None]]:
        """Return the choice number of each event, -1 for whole images, and the missing names of each choice."""
        if field not in self._choices:
            events = self._found.events
            numbers, firsts = np.empty(len(events), np.int32), np.empty(len(events), np.int32)
            table = np.zeros(1 << (2 * len(events)).bit_length(), np.int32)
            count = number_choices(
                address(self._found.data),
                address(events),
                len(events),
                EventRecord.FIELDS[field].offset,
                address(numbers),
                address(table),
                len(table) - 1,
                address(firsts),
            )
            self._choices[field] = numbers, [self._missing(int(event), field) for event in firsts[:count]]
        return self._choices[field]

    def _missing(self, event: int, field: str) -> list[str] | None:
        record = self._found.events[event]
        width, start = int(record["width"]), int(record[field])
        # Read by address, because the bitmaps of rewritten events are outside the range.
        bitmap = ctypes.string_at(address(self._found.data) + start, (width + 7) // 8)
        if all(is_set(bitmap, i) for i in range(width)):
            return None
        names = self._names(int(record["slot"]))
        return [name for i, name in enumerate(names) if name is not None and not is_set(bitmap, i)]
