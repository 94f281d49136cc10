"""Rows that were read, moved to one place of the stream: what changed since is taken from there.

In: a chunk of rows as one SELECT saw them, and what is there at the place of each key that the stream touches around
the reading. Whether the SELECT saw a change or not does not matter: a touched key's row is the stream's, and the others
did not change. Out: the chunk's rows at the place, as blocks of one table map each. Where nothing was touched it is the
chunk itself.

Rows of the stream go into the chunk's own block where both table maps describe the same images; else they stand in
blocks of their own, under the stream's table map.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from replica.errors import ProtocolError
from replica.native.arrays import address
from replica.protocol.rows.table_map import parse_table_map
from replica.snapshot.images.kernel_key_states import copy_pieces, drop_touched, merge_in_order
from replica.snapshot.images.partial_rows import completed
from replica.snapshot.images.same_images import same_images
from replica.snapshot.rows.row_block import RowBlock

if TYPE_CHECKING:
    import numpy.typing as npt

    from replica.snapshot.images.key_states import KeyStates

    Ints = npt.NDArray[np.int64]


def moved(
    chunk: RowBlock, states: KeyStates, begin: bytes | None, end: bytes | None, *, puts: bool = True
) -> list[RowBlock]:
    """Return the chunk's rows at the place of `states`, in key order where the key is ordered.

    Args:
        chunk: the rows; with an ordered key ascending.
        states: the touched keys, which take in all that changed behind the position that the SELECT surely saw.
        begin: the chunk covers the keys behind this one, canonical bytes; None: from the first one.
        end: up to this one; None: to the last one.
        puts: put in rows that are there and not in the chunk. Without an order, the touched rows come behind the
            others, and of several chunks only one may put them.

    Raises:
        PartialRowError: images lack columns that the chunk does not have.
        ProtocolError: the rows of an ordered key do not ascend.
    """
    first, last = states.between(begin, end) if states.ordered else (0, len(states))
    if first == last:
        return [chunk]
    states = completed(states, chunk, first, last, final=puts)
    taken = _in_order(chunk, states, first, last) if states.ordered else _behind(chunk, states, puts=puts)
    if len(taken) == chunk.rows and (taken == np.arange(chunk.rows)).all():
        return [chunk]
    return _blocks(chunk, states, taken)


def _in_order(chunk: RowBlock, states: KeyStates, first: int, last: int) -> Ints:
    taken = np.empty(chunk.rows + last - first, np.int64)
    count = merge_in_order(
        *(address(chunk.keys), address(chunk.key_ends), chunk.rows),
        *(address(states.halves), address(states.present), first, last, address(taken)),
    )
    if count < 0:
        table_map = parse_table_map(chunk.table_map)
        name = f"{table_map.database}.{table_map.table}"
        raise ProtocolError(
            f"row {-1 - count} of a result in the order of the key of {name} does not come behind the row before it.",
            hint="Report this with the declaration of the table's key.",
        )
    return taken[:count]


def _behind(chunk: RowBlock, states: KeyStates, *, puts: bool) -> Ints:
    taken = np.empty(chunk.rows, np.int64)
    table = np.zeros(1 << (2 * len(states) + 1).bit_length(), np.int32)
    numbers = np.arange(len(states), dtype=np.int64)
    count = drop_touched(
        *(address(chunk.keys), address(chunk.key_ends), chunk.rows, address(states.halves)),
        *(address(numbers), len(states), address(table), len(table) - 1, address(taken)),
    )
    there = np.flatnonzero(states.present) if puts else np.empty(0, np.int64)
    return np.concatenate((taken[:count], -1 - there))


def _blocks(chunk: RowBlock, states: KeyStates, taken: Ints) -> list[RowBlock]:
    """Return the rows that `taken` names, a block for each stretch of one table map."""
    ours = taken >= 0
    row, half = taken[ours], states.halves[-1 - taken[~ours]]
    image, image_sizes = _pieces(chunk.images, chunk.ends, ours, row, half["image"], half["size"])
    key, key_sizes = _pieces(chunk.keys, chunk.key_ends, ours, row, half["key"], half["key_size"])
    alike = np.zeros(len(states.table_maps), np.bool_)
    for number in np.unique(half["slot"]).tolist():
        alike[number] = same_images(chunk.table_map, states.table_maps[number])
    maps = np.full(len(taken), -1, np.int64)  # of rows that go into the chunk's own block
    maps[~ours] = np.where(alike[half["slot"]], -1, half["slot"])
    borders = np.flatnonzero(maps[1:] != maps[:-1]) + 1
    made = []
    for begin, end in zip([0, *borders.tolist()], [*borders.tolist(), len(taken)], strict=True):
        if begin == end:
            continue
        number = int(maps[begin])
        body = chunk.table_map if number < 0 else states.table_maps[number]
        width = chunk.width if number < 0 else len(parse_table_map(body).columns)
        images, ends = _copied(image[begin:end], image_sizes[begin:end])
        keys, key_ends = _copied(key[begin:end], key_sizes[begin:end])
        made.append(RowBlock(body, width, images, ends, keys, key_ends, chunk.left_out))
    return made


def _pieces(
    memory: npt.NDArray[np.uint8], ends: Ints, ours: npt.NDArray[np.bool_], row: Ints, places: Ints, lengths: Ints
) -> tuple[Ints, Ints]:
    """Return the address and the size of a piece of each row: of the chunk's `memory`, or at one of the `places`."""
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
    addresses, sizes = np.empty(len(ours), np.int64), np.empty(len(ours), np.int64)
    addresses[ours], sizes[ours] = address(memory) + starts[row], ends[row] - starts[row]
    addresses[~ours], sizes[~ours] = places, lengths
    return addresses, sizes


def _copied(addresses: Ints, sizes: Ints) -> tuple[npt.NDArray[np.uint8], Ints]:
    ends = sizes.cumsum()
    target = np.empty(int(ends[-1]), np.uint8)
    addresses, sizes = np.ascontiguousarray(addresses), np.ascontiguousarray(sizes)
    copy_pieces(address(addresses), address(sizes), len(sizes), address(target))
    return target, ends
