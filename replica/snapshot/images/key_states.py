"""The keys that a stretch of the stream touches, and what is there of each at one place of it.

In: the halves of a table's row changes, in order. Out: `KeyStates`, in the order of the key bytes. Up to the place the
last change of a key decides, and where there is none, the first one behind it: its before image is what was there.
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
"""A place behind all others."""


@dataclass(frozen=True, slots=True)
class Chains:
    """The halves that rows with images which lack columns are put together of. `links`: per half the one before it of
    the same key, -1: none; `deciders`: per key its last half; `partial`: which keys those are.
    """

    halves: Records
    links: Ints
    deciders: Ints
    partial: npt.NDArray[np.bool_]

    @property
    def last(self) -> int:
        """The place behind the last change that lacks columns."""
        return int(self.halves["place"][self.deciders[self.partial]].max())


@dataclass(frozen=True, slots=True)
class KeyStates:
    """The touched keys. `halves`: HalfRecords, one a key, ascending by key bytes; the image is that of the row at the
    place, where `present` says that there is one. `table_maps`: the bodies that `slot` counts.

    `ordered`: the server sorts keys as their bytes sort.
    """

    halves: Records
    present: npt.NDArray[np.bool_]
    table_maps: tuple[bytes, ...]
    ordered: bool
    memory: tuple[Any, ...]  # what the addresses of the halves lie in
    chains: Chains | None = None
    """Where rows lack columns: what they are made whole of (partial_rows.py) before anything is done with them."""

    def __len__(self) -> int:
        return len(self.halves)

    def key(self, number: int) -> bytes:
        """Return the key bytes of one of them."""
        return ctypes.string_at(int(self.halves["key"][number]), int(self.halves["key_size"][number]))

    def image(self, number: int) -> bytes | None:
        """Return the row image of one of them, None where there is no row."""
        if not self.present[number]:
            return None
        return ctypes.string_at(int(self.halves["image"][number]), int(self.halves["size"][number]))

    def between(self, begin: bytes | None, end: bytes | None) -> tuple[int, int]:
        """Return the numbers of the keys behind `begin` and up to `end`, the last one's not included."""
        first = 0 if begin is None else bisect_right(range(len(self)), begin, key=self.key)
        last = len(self) if end is None else bisect_right(range(len(self)), end, lo=first, key=self.key)
        return first, last


class Untold(NamedTuple):
    """A half that has to be known and does not tell its key, or not all of its columns; `place`: where its group
    ends.
    """

    place: int
    key: bool


def states_of(
    segments: Sequence[HalfSegment], table_maps: Sequence[bytes], start: int, upto: int, until: int, *, ordered: bool
) -> KeyStates | Untold:
    """Return the keys that halves behind `start` and up to `until` are of, and what is there at `upto`, if the images
    tell.

    Where `until` is not behind `upto`, rows may lack columns: what was read before `until` has these.
    """
    halves: Records = np.concatenate([np.empty(0, HalfRecord.dtype), *(segment.halves for segment in segments)])
    found = _decided(halves, start, upto, until)
    if isinstance(found, Untold):
        return found
    deciders, links = found
    spare = np.empty_like(deciders)  # held while the kernel writes to it
    sort_by_key(address(halves), address(deciders), address(spare), len(deciders))
    decided = halves[deciders]
    present = (decided["flags"] & PUTS != 0) == (decided["place"] <= upto)
    partial = present & (decided["flags"] & IS_WHOLE == 0)
    lacking = np.flatnonzero(partial)
    if len(lacking) and until > upto:
        return Untold(int(decided["place"][lacking].max()), key=False)
    chains = Chains(halves, links, deciders, partial) if len(lacking) else None
    return KeyStates(decided, present, tuple(table_maps), ordered, tuple(segments), chains)


def latest(segments: Sequence[HalfSegment]) -> HalfSegment | None:
    """Return the last half of each key, in one segment; None where a half does not tell its key, or lacks columns."""
    halves: Records = np.concatenate([segment.halves for segment in segments])
    if (halves["flags"] & IS_WHOLE == 0).any():
        return None  # the last word on a key has only a part of its columns
    found = _decided(halves, -1, _ANYWHERE, _ANYWHERE)
    if isinstance(found, Untold):
        return None
    halves = halves[np.sort(found[0])]
    keys = _gathered(halves, "key", "key_size")
    images: tuple[Any, ...] = tuple(part for segment in segments for part in segment.images)
    copied = sum(segment.copied for segment in segments)
    if int(halves["size"].sum()) < copied:
        images = (_gathered(halves, "image", "size"),)
        copied = images[0].nbytes
    return HalfSegment(halves, keys, images, copied)


def _decided(halves: Records, start: int, upto: int, until: int) -> tuple[Ints, Ints] | Untold:
    """Return the numbers of the halves that decide, and what `decide` links; or the half whose key is not told."""
    table = np.zeros(1 << (2 * len(halves) + 1).bit_length(), np.int32)
    deciders, links = np.empty(len(halves), np.int64), np.full(len(halves), -1, np.int64)
    count = decide(
        *(address(halves), len(halves), start, upto, until),
        *(address(table), len(table) - 1, address(deciders), address(links)),
    )
    if count < 0:
        return Untold(int(halves["place"][-1 - count]), key=True)
    return deciders[:count].copy(), links


def _gathered(halves: Records, start: str, size: str) -> npt.NDArray[np.uint8]:
    """Copy what the halves point at into memory of its own, and let them point there."""
    sources, sizes = halves[start].copy(), halves[size].copy()
    ends = sizes.cumsum()
    target = np.empty(int(ends[-1]), np.uint8)
    copy_pieces(address(sources), address(sizes), len(halves), address(target))
    halves[start] = address(target) + ends - sizes
    return target
