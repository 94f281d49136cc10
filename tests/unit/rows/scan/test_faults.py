"""Every code of the scan kernel has a sentence; which bytes lead to which code is in test_scan.py."""

from __future__ import annotations

import numpy as np
import pytest

from replica.errors import TruncatedError
from replica.rows.scan import records as s
from replica.rows.scan.scan import scan_fault

CODES = {
    name: value
    for name, value in vars(s).items()
    if name.isupper() and name in {
        "SHORT_EVENT", "UNKNOWN_EVENT", "OUTSIDE_GROUP", "NO_TABLE_MAP", "INCIDENT", "BAD_EVENT", "TOO_MANY_MAPS",
        "OPEN_GROUP", "HISTORICAL", "ENCRYPTED",
    }
}  # fmt: skip


@pytest.mark.parametrize("name", CODES)
def test_every_code_has_its_words_and_the_event(name: str) -> None:
    state = np.zeros((), s.ScanState.dtype)
    state["fault"], state["detail"] = 5, 20
    error = scan_fault(CODES[name], np.zeros(40, np.uint8), state)
    assert error.offset == 5
    assert isinstance(error, TruncatedError) == (name in ("SHORT_EVENT", "OPEN_GROUP"))
    if name in ("OUTSIDE_GROUP", "BAD_EVENT", "HISTORICAL"):
        assert "PRE_GA_WRITE_ROWS (20)" in error.message
