"""Record of one row half: either the before image or the after image of a row change, with its key.

An insert has one half that puts a row, a delete has one that removes a row, and an update has both.
"""

from __future__ import annotations

from replica.native.record import Record, word

PUTS = 1
IS_WHOLE = 2
KEEPS = 4


class HalfRecord(Record):
    """One image of a row change."""

    place = word("where the event group ends that committed it: place_of() of its location")
    key = word("address of its canonical key bytes")
    key_size = word("bytes of the key, -1: the images do not tell it")
    image = word("address of the row image")
    size = word("bytes of the image")
    slot = word("number of its table map")
    flags = word(
        "PUTS: the image is what is there afterwards, else what was there before; IS_WHOLE: with all columns, else the "
        "bitmap of its columns stands before it; KEEPS: the row had this key before, in the half before this one of it"
    )
