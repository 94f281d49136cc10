"""State of each changed key at one relay log location.

`states_of` turns the row halves of a table into `KeyStates`, sorted by key bytes. The last change of a key up to the
location determines the row. If there is none, the before image of the first later change is the row.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from replica.native.arrays import address
from replica.protocol.rows.table_map import parse_table_map
from replica.rows.decode.slots import CompiledTable
from replica.rows.types.types import ValuePolicy
from replica.snapshot.images.kernel_key_states import copy_pieces, decide, find_rows, sort_by_key
from replica.snapshot.images.kernel_partial_rows import IS_WHOLE, PUTS, SPOT_BYTES, HalfRecord, complete_rows
from replica.snapshot.images.row_halves import ImageSegment, same_layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from replica.native.record import Records

    Ints = npt.NDArray[np.int64]
    from replica.snapshot.rows.row_block import RowBlock

_ANYWHERE: Final = (1 << 63) - 1
"""Location after all others."""


@dataclass(frozen=True, slots=True)
class Chains:
    """Halves from which rows with partial images are completed.

    Attributes:
        halves: HalfRecords in order.
        links: int64, for each half the previous one of the same key, -1 for none.
        deciders: int64, for each key its last half.
        partial: bool by key; whether the key has a partial image.
    """

    halves: Records
    links: Ints
    deciders: Ints
    partial: npt.NDArray[np.bool_]

    @property
    def last(self) -> int:
        """Location after the last change with a partial image."""
        return int(self.halves["place"][self.deciders[self.partial]].max())


@dataclass(frozen=True, slots=True)
class KeyStates:
    """Changed keys and their rows at one location.

    Attributes:
        halves: HalfRecords, one per key, ascending by key bytes. A half has the image of the current row if `present`
            is True.
        present: bool by key; whether a row with the key exists at the location.
        table_maps: Bodies of the table maps, indexed by `slot`.
        ordered: Whether the server sorts keys as their bytes sort.
        memory: Owner of the memory that the halves point into.
    """

    halves: Records
    present: npt.NDArray[np.bool_]
    table_maps: tuple[bytes, ...]
    ordered: bool
    memory: tuple[Any, ...]  # keeps the memory of the halves alive
    chains: Chains | None = None
    """Source for rows with partial images; `key_states.py` must complete them before any other use."""

    def __len__(self) -> int:
        return len(self.halves)

    def key(self, number: int) -> bytes:
        """Return the bytes of one key."""
        return ctypes.string_at(int(self.halves["key"][number]), int(self.halves["key_size"][number]))

    def image(self, number: int) -> bytes | None:
        """Return the row image of one key, None if no row exists."""
        if not self.present[number]:
            return None
        return ctypes.string_at(int(self.halves["image"][number]), int(self.halves["size"][number]))

    def between(self, begin: bytes | None, end: bytes | None) -> tuple[int, int]:
        """Return the range [first, last) of the keys after `begin` and up to and including `end`."""
        first = 0 if begin is None else bisect_right(range(len(self)), begin, key=self.key)
        last = len(self) if end is None else bisect_right(range(len(self)), end, lo=first, key=self.key)
        return first, last


class MissingImages(NamedTuple):
    """Half whose images lack a needed key or column. `place`: end of its event group. `key`: whether the key is
    missing.
    """

    place: int
    key: bool


def states_of(
    segments: Sequence[ImageSegment], table_maps: Sequence[bytes], start: int, upto: int, until: int, *, ordered: bool
) -> KeyStates | MissingImages:
    """Return the state at `upto` of every key that changed after `start` and up to `until`.

    Rows may have partial images only if `until` is not after `upto`. In that case a chunk that was read before `until`
    has the missing columns. If the images lack a needed key or column, the result is `MissingImages`.

    Args:
        segments: Halves of one table, in the order of the relay log. The result keeps a reference to their memory.
        table_maps: Bodies of the table maps, indexed by `slot` of the halves.
        start: Location after which changes count, as a number of `place_of`.
        upto: Location of the state, as a number of `place_of`.
        until: Location up to which changes count, as a number of `place_of`.
        ordered: Whether the server sorts keys as their bytes sort.
    """
    halves: Records = np.concatenate([np.empty(0, HalfRecord.dtype), *(segment.halves for segment in segments)])
    found = _decided(halves, start, upto, until)
    if isinstance(found, MissingImages):
        return found
    deciders, links = found
    spare = np.empty_like(deciders)  # held while the kernel writes to it
    sort_by_key(address(halves), address(deciders), address(spare), len(deciders))
    decided = halves[deciders]
    present = (decided["flags"] & PUTS != 0) == (decided["place"] <= upto)
    partial = present & (decided["flags"] & IS_WHOLE == 0)
    lacking = np.flatnonzero(partial)
    if len(lacking) and until > upto:
        return MissingImages(int(decided["place"][lacking].max()), key=False)
    chains = Chains(halves, links, deciders, partial) if len(lacking) else None
    return KeyStates(decided, present, tuple(table_maps), ordered, tuple(segments), chains)


def latest(segments: Sequence[ImageSegment]) -> ImageSegment | None:
    """Return the last half of each key in one segment; None if a half has an unknown key or a partial image."""
    halves: Records = np.concatenate([segment.halves for segment in segments])
    if (halves["flags"] & IS_WHOLE == 0).any():
        return None  # the last image of a key may lack columns
    found = _decided(halves, -1, _ANYWHERE, _ANYWHERE)
    if isinstance(found, MissingImages):
        return None
    halves = halves[np.sort(found[0])]
    keys = _gathered(halves, "key", "key_size")
    images: tuple[Any, ...] = tuple(part for segment in segments for part in segment.images)
    copied = sum(segment.copied for segment in segments)
    if int(halves["size"].sum()) < copied:
        images = (_gathered(halves, "image", "size"),)
        copied = images[0].nbytes
    return ImageSegment(halves, keys, images, copied)


def _decided(halves: Records, start: int, upto: int, until: int) -> tuple[Ints, Ints] | MissingImages:
    """Return the deciding halves and the links that `decide` writes, or the half whose key is unknown."""
    table = np.zeros(1 << (2 * len(halves) + 1).bit_length(), np.int32)
    deciders, links = np.empty(len(halves), np.int64), np.full(len(halves), -1, np.int64)
    count = decide(
        *(address(halves), len(halves), start, upto, until),
        *(address(table), len(table) - 1, address(deciders), address(links)),
    )
    if count < 0:
        return MissingImages(int(halves["place"][-1 - count]), key=True)
    return deciders[:count].copy(), links


def _gathered(halves: Records, start: str, size: str) -> npt.NDArray[np.uint8]:
    """Copy the memory that the halves point at into a new array, and make the halves point there."""
    sources, sizes = halves[start].copy(), halves[size].copy()
    ends = sizes.cumsum()
    target = np.empty(int(ends[-1]), np.uint8)
    copy_pieces(address(sources), address(sizes), len(halves), address(target))
    halves[start] = address(target) + ends - sizes
    return target


# If no change of the window sets a column, its value is the one in the chunk. This works only forward, to a location at
# or after the read of the chunk. `completed` raises PartialRowError in two cases. The row was created in the window
# with a part of its columns and is not in the chunk, or it cannot be matched to a row of the chunk with certainty.
#
# `row_halves.py` completes the images of updates under FULL_NODUP, because the before image has all columns.


class PartialRowError(Exception):
    """Error for a row with an unknown column. `place`: location after the change that omits the column. This error
    never leaves the snapshot package.
    """

    def __init__(self, place: int) -> None:
        super().__init__(place)
        self.place = place


def completed(states: KeyStates, chunk: RowBlock, first: int, last: int, *, final: bool) -> KeyStates:
    """Return the states with full images for the keys [first, last), if the chunk has the missing columns.

    Args:
        states: Changed keys at a location at or after the read of the chunk.
        chunk: Rows of the chunk.
        first: Number of the first key in `states` that the chunk covers.
        last: Number after the last such key.
        final: Whether no other chunk may have the missing columns.

    Raises:
        PartialRowError: A row has an unknown column.
    """
    chains = states.chains
    if chains is None:
        return states
    numbers = first + np.flatnonzero(chains.partial[first:last])
    if not len(numbers):
        return states
    slots: list[int] = np.unique(chains.halves["slot"]).tolist()
    if not all(same_layout(chunk.table_map, states.table_maps[slot]) for slot in slots):
        raise PartialRowError(_last(chains, numbers))
    rows = _read(states, chunk, numbers)
    lasts = np.ascontiguousarray(chains.deciders[numbers])
    images, sizes = _full_images(chains, chunk.table_map, lasts, rows)
    known = sizes >= 0
    if final and not known.all():
        raise PartialRowError(_last(chains, numbers[~known]))
    numbers, sizes = numbers[known], sizes[known]
    halves, partial = states.halves.copy(), chains.partial.copy()
    halves["image"][numbers] = address(images) + sizes.cumsum() - sizes
    halves["size"][numbers] = sizes
    halves["flags"][numbers] |= IS_WHOLE
    partial[numbers] = False
    return replace(
        states, halves=halves, memory=(*states.memory, images, chunk), chains=replace(chains, partial=partial)
    )


def _last(chains: Chains, numbers: Ints) -> int:
    return int(chains.halves["place"][chains.deciders[numbers]].max())


def _read(states: KeyStates, chunk: RowBlock, numbers: Ints) -> Ints:
    """Return the addresses of the chunk's images of these keys, 0 for a key without a row."""
    found = np.full(len(numbers), -1, np.int64)
    table = np.zeros(1 << (2 * len(numbers) + 1).bit_length(), np.int32)
    find_rows(
        *(address(chunk.keys), address(chunk.key_ends), chunk.rows, address(states.halves)),
        *(address(numbers), len(numbers), address(table), len(table) - 1, address(found)),
    )
    starts = np.concatenate((np.zeros(1, np.int64), chunk.ends))
    return np.where(found < 0, 0, address(chunk.images) + starts[found])


def _full_images(chains: Chains, table_map: bytes, lasts: Ints, rows: Ints) -> tuple[npt.NDArray[np.uint8], Ints]:
    """Return the full images one after the other, and the size of each, -1 for an image with an unknown column."""
    plan = _plan(table_map)
    spots = np.empty(len(plan) * SPOT_BYTES, np.uint8)
    sizes = np.empty(len(lasts), np.int64)
    images = np.empty(0, np.uint8)
    for target in (0, 1):
        total = complete_rows(
            *(address(chains.halves), address(chains.links), address(lasts), len(lasts), address(rows)),
            *(address(plan), len(plan), address(spots), address(sizes), target and address(images)),
        )
        images = images if target else np.empty(max(1, total), np.uint8)
    return images, sizes


@lru_cache(maxsize=256)
def _plan(table_map: bytes) -> Records:
    """Return the plan to walk the columns of images under a table map built by this client."""
    return CompiledTable(parse_table_map(table_map), None, (), ValuePolicy()).walk.records
