"""Complete rows whose images lack columns (binlog_row_image MINIMAL or NOBLOB) with the values of a chunk.

`completed` takes the key states of a window and a chunk. A column that no change of the window sets has the value in
the chunk, because the chunk saw no later change of it. This works only forward, to a location at or after the read. Two
kinds of rows raise PartialRowError and must be read later. One was created in the window with a part of its columns and
is not in the chunk. The other cannot be matched to the chunk's row with certainty.

`row_halves.py` completes the images of updates under FULL_NODUP, because the before image has all columns.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from replica.native.arrays import address
from replica.protocol.rows.table_map import parse_table_map
from replica.rows.decode.slots import CompiledTable
from replica.rows.types.types import ValuePolicy
from replica.snapshot.images.half_record import IS_WHOLE
from replica.snapshot.images.kernel_key_states import find_rows
from replica.snapshot.images.kernel_partial_rows import SPOT_BYTES, complete_rows
from replica.snapshot.images.same_images import same_layout

if TYPE_CHECKING:
    import numpy.typing as npt

    from replica.native.record import Records
    from replica.snapshot.images.key_states import Chains, KeyStates
    from replica.snapshot.rows.row_block import RowBlock

    Ints = npt.NDArray[np.int64]


class PartialRowError(Exception):
    """A row has an unknown column. `place`: location after the change that omits it. This error never leaves the
    snapshot package.
    """

    def __init__(self, place: int) -> None:
        super().__init__(place)
        self.place = place


def completed(states: KeyStates, chunk: RowBlock, first: int, last: int, *, final: bool) -> KeyStates:
    """Return the states with full images for the keys [first, last), if the chunk has the missing columns.

    `final`: no other chunk may have the missing columns.

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
    images, sizes = _whole(chains, chunk.table_map, lasts, rows)
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


def _whole(chains: Chains, table_map: bytes, lasts: Ints, rows: Ints) -> tuple[npt.NDArray[np.uint8], Ints]:
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
