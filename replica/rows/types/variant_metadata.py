"""Dictionary of a VARIANT: the sorted names of a table's columns, equal for every row of the table.

The encoding is Spark's (org.apache.spark.types.variant.VariantUtil).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_VERSION, _SORTED = 1, 1 << 4


def variant_metadata(names: Sequence[str]) -> bytes:
    """Return the dictionary of these names; the id of a name is its rank in sort order."""
    # Spark sorts as Java does, by UTF-16 units. MariaDB's identifiers have no characters beyond the BMP.
    texts = [name.encode() for name in sorted(names)]
    size = width_of(max(len(texts), sum(map(len, texts))))
    offsets = [sum(map(len, texts[:i])) for i in range(len(texts) + 1)]
    header = bytes((_VERSION | _SORTED | size - 1 << 6,))
    return header + b"".join(n.to_bytes(size, "little") for n in (len(texts), *offsets)) + b"".join(texts)


def width_of(largest: int) -> int:
    """Return the bytes that an unsigned number needs, 1 to 4."""
    return max(1, (largest.bit_length() + 7) // 8)
