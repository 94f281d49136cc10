"""Which servers leave out generated columns; tests/integration/test_decoded_values.py asks them."""

from __future__ import annotations

import pytest

from replica.schema.generated import omits_generated


@pytest.mark.parametrize(
    ("version", "omits"),
    [
        ("10.5.29-MariaDB-0+deb11u1", False),
        ("10.11.19-MariaDB-log", False),
        ("11.8.6-MariaDB", False),
        ("11.8.9-MariaDB-0+deb13u1", True),
        ("12.3.1-MariaDB", True),
        ("", False),
    ],
)
def test_versions(version: str, *, omits: bool) -> None:
    assert omits_generated(version) is omits
