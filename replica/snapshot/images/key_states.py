"""State of each changed key at one relay log location.

`states_of` turns the row halves of a table into `KeyStates`, sorted by key bytes. The last change of a key up to the
location determines the row. If there is none, the before image of the first later change is the row.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from replica.native.arrays import address
from replica.snapshot.images.half_record import IS_WHOLE, PUTS, HalfRecord
from replica.snapshot.images.kernel_key_states import copy_pieces, decide, sort_by_key
from replica.snapshot.images.row_halves import HalfSegment

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from replica.native.record import Records

    Ints = npt.NDArray[np.int64]

_ANYWHERE: Final = (1 << 63) - 1
"""Location after all others."""


@dataclass(frozen=True, slots=True)
class Chains:
    """Halves from which rows with partial images are completed.

    Attributes:
        halves: HalfRecords in order.
        links: int64, for each half the previous one of the same key, -1 for none.
        deciders: int64, for each key its last half.
        partial: Which keys have a partial image.
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
        halves: HalfRecords, one per key, ascending by key bytes. The image is the row's if `present` is True.
        present: Whether a row with the key exists at the location.
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
    """Source for rows with partial images; `partial_rows.py` must complete them before any other use."""

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
    """Half whose key, or some of whose columns, are needed and unknown. `place`: end of its event group."""

    place: int
    key: bool


def states_of(
    segments: Sequence[HalfSegment], table_maps: Sequence[bytes], start: int, upto: int, until: int, *, ordered: bool
) -> KeyStates | MissingImages:
    """Return the state at `upto` of every key that halves after `start` and up to `until` change.

    Rows may have partial images only if `until` is not after `upto`. In that case a chunk that was read before `until`
    has the missing columns. If the images lack a needed key or column, the result is `MissingImages`.
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


def latest(segments: Sequence[HalfSegment]) -> HalfSegment | None:
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
    return HalfSegment(halves, keys, images, copied)


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
