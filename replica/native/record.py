"""Declare memory that kernels and Python share: each field of a record once, by its name and its meaning.

A subclass of `Record` lists its fields in the order in which they lie in memory:

    class FoundRecord(Record):
        \"\"\"One row that was found.\"\"\"

        row = word("its number")
        place = word("its offset in the range")

For kernels `FoundRecord.place` is the field's offset in bytes and `FoundRecord.BYTES` the size of the whole: they load
and store at `found + FoundRecord.place`. For Python `FoundRecord.dtype` is the same layout as a type of numpy's:
`np.zeros(n, FoundRecord.dtype)["place"]` are the places of all records, and a misspelt field is an error in both.

Fields follow each other, so they cannot overlap; what else can go wrong is refused when the class is made.
`python -m tests.kit.pages.records > docs/records.md` writes down all of them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, cast

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

Records: TypeAlias = "npt.NDArray[np.void]"
"""An array of one of the types below: `records["place"]` is a view of one field of all of them."""

_WORD: Final = np.dtype("<i8")
_CODES: Final = {"<i8": "q", "<u8": "Q", "<u4": "I"}
"""What the module struct calls the numbers of a record."""
_RESERVED: Final = frozenset({"BYTES", "FIELDS", "dtype", "packing"})


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a record; `count` numbers or records of one type, one after the other."""

    meaning: str
    dtype: np.dtype[Any]
    kind: str = ""  # what it is, where it is not one int64
    count: int = 1
    offset: int = -1

    @property
    def size(self) -> int:
        return self.dtype.itemsize * self.count


def word(meaning: str, *, count: int = 1) -> int:
    """Declare an int64, or `count` of them: a number, or an address."""
    return cast("int", Field(meaning, _WORD, "" if count == 1 else f"{count} int64", count))


def unsigned(meaning: str) -> int:
    """Declare a uint64: a number of 64 bits without a sign, of a file or of the wire."""
    return cast("int", Field(meaning, np.dtype("<u8"), "uint64"))


def half(meaning: str) -> int:
    """Declare a uint32: a number of 32 bits without a sign, of a file or of the wire."""
    return cast("int", Field(meaning, np.dtype("<u4"), "uint32"))


def part(record: type[Record], meaning: str, *, count: int = 1) -> int:
    """Declare a record inside of this one, or `count` of them."""
    return cast(
        "int", Field(meaning, record.dtype, record.__name__ if count == 1 else f"{count} {record.__name__}", count)
    )


class Layout(type):
    """Lay out the fields of a record when its class is made."""

    BYTES: int
    FIELDS: dict[str, Field]
    dtype: np.dtype[Any]

    def __new__(cls, name: str, bases: tuple[type, ...], members: dict[str, Any]) -> Layout:
        """Replace each field by its offset."""
        fields: dict[str, Field] = {}
        offset = 0
        for member, field in members.items():
            if not isinstance(field, Field):
                continue
            if member in _RESERVED or hasattr(type, member):
                raise TypeError(f"{name}.{member}: a record has no field of that name")
            if offset % min(field.dtype.itemsize, _WORD.itemsize) or field.count < 1:
                raise TypeError(f"{name}.{member} begins at byte {offset}, and it is {field.count} numbers")
            fields[member] = replace(field, offset=offset)
            offset += field.size
        offsets = {member: field.offset for member, field in fields.items()}
        layout = super().__new__(cls, name, bases, members | offsets)
        layout.BYTES = offset
        layout.FIELDS = fields
        layout.dtype = np.dtype(
            [(member, field.dtype, (field.count,) if field.count > 1 else ()) for member, field in fields.items()]
        )
        if layout.dtype.itemsize != offset:
            raise TypeError(f"{name} takes {offset} bytes for kernels, {layout.dtype.itemsize} for numpy")
        return layout

    def packing(cls) -> struct.Struct:
        """Make what packs and unpacks one record where Python has bytes and no array: records of plain numbers only."""
        return struct.Struct("<" + "".join(_CODES[field.dtype.str] for field in cls.FIELDS.values()))


class Record(metaclass=Layout):
    """Stand for memory that is laid out as the subclass says; never made itself."""

    BYTES: ClassVar[int]
    FIELDS: ClassVar[dict[str, Field]]
    dtype: ClassVar[np.dtype[Any]]
