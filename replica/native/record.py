r"""Layout of memory that kernels and Python share: each field of a record is declared once, with name and meaning.

A subclass of `Record` lists its fields in memory order:

    class FoundRecord(Record):
        \"\"\"One row that was found.\"\"\"

        row = word("its number")
        place = word("its offset in the range")

For kernels, `FoundRecord.place` is the field's offset in bytes, and `FoundRecord.BYTES` the size of the record: they
load and store at `found + FoundRecord.place`. For Python, `FoundRecord.dtype` is the same layout as a numpy type:
`np.zeros(n, FoundRecord.dtype)["place"]` has the places of all records. A misspelt field is an error in both.

Fields are consecutive, so they cannot overlap; the class statement refuses other faults. `python -m
tools.pages.records > docs/records.md` writes a page of all records.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, cast

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

Records: TypeAlias = "npt.NDArray[np.void]"
"""Array of one record type: `records["place"]` is a view of one field of all records."""

_WORD: Final = np.dtype("<i8")
_CODES: Final = {"<i8": "q", "<u8": "Q", "<u4": "I"}
"""Codes of the number types in the module struct."""
_RESERVED: Final = frozenset({"BYTES", "FIELDS", "dtype", "packing"})


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a record: `count` numbers, or records of one type, one after the other."""

    meaning: str
    dtype: np.dtype[Any]
    kind: str = ""  # description of the type, if it is not one int64
    count: int = 1
    offset: int = -1

    @property
    def size(self) -> int:
        return self.dtype.itemsize * self.count


def word(meaning: str, *, count: int = 1) -> int:
    """Declare an int64 field, or `count` of them: a number, or an address."""
    return cast("int", Field(meaning, _WORD, "" if count == 1 else f"{count} int64", count))


def unsigned(meaning: str) -> int:
    """Declare a uint64 field: an unsigned number of 64 bits in a file or a packet."""
    return cast("int", Field(meaning, np.dtype("<u8"), "uint64"))


def half(meaning: str) -> int:
    """Declare a uint32 field: an unsigned number of 32 bits in a file or a packet."""
    return cast("int", Field(meaning, np.dtype("<u4"), "uint32"))


def part(record: type[Record], meaning: str, *, count: int = 1) -> int:
    """Declare a record inside of this one, or `count` of them."""
    return cast(
        "int", Field(meaning, record.dtype, record.__name__ if count == 1 else f"{count} {record.__name__}", count)
    )


class Layout(type):
    """Metaclass that lays out the fields of a record class."""

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
                raise TypeError(f"{name}.{member}: a record cannot have a field of that name")
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
        """Return the struct that packs and unpacks one record of plain numbers, for code without an array."""
        return struct.Struct("<" + "".join(_CODES[field.dtype.str] for field in cls.FIELDS.values()))


class Record(metaclass=Layout):
    """Base class of record layouts; it has no instances."""

    BYTES: ClassVar[int]
    FIELDS: ClassVar[dict[str, Field]]
    dtype: ClassVar[np.dtype[Any]]
