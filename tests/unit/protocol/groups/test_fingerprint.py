from __future__ import annotations

from dataclasses import replace

import pytest

from replica.errors import ConfigError
from replica.protocol.groups.fingerprint import Fingerprint
from replica.protocol.gtid import Gtid

ONE = Fingerprint(Gtid(0, 1, 7), 1_700_000_000, 0xA, 0xB, 0xC)


def test_it_is_read_back_from_its_text() -> None:
    assert str(ONE) == "0-1-7 1700000000 0000000a 0000000b 0000000c"
    assert Fingerprint.parse(str(ONE)) == ONE


@pytest.mark.parametrize("text", ["", "0-1-7", "0-1-7 x 1 2 3", "0-1-7 1 2 3", "0-1-7 1 2 3 4 5"])
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises((ValueError, ConfigError), match=r"is not a GTID|unpack|invalid literal"):
        Fingerprint.parse(text)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (ONE, ""),
        (replace(ONE, gtid=Gtid(0, 1, 8)), "0-1-8"),
        (replace(ONE, time=1_700_000_001), "1700000001"),
        (replace(ONE, tables=1), "other tables"),
        (replace(ONE, rows=1), "other rows"),
        (replace(ONE, rows=1, layout=1), ""),  # other columns are logged there: the values cannot be compared
        (replace(ONE, tables=0, layout=0, rows=0), ""),  # a statement as text
        (replace(ONE, time=0, tables=0, layout=0, rows=0), ""),  # a copy without statements
    ],
)
def test_only_what_all_copies_share_is_a_difference(other: Fingerprint, words: str) -> None:
    assert words in ONE.difference(other)
    assert bool(ONE.difference(other)) == bool(words)
    assert bool(other.difference(ONE)) == bool(words)
