"""docs/mistakes.md: each mistake is made again, and says what the page says."""

from __future__ import annotations

import re

import pytest

from tests.fixtures.installation import PROJECT
from tests.kit.mistakes import page

pytestmark = [pytest.mark.server, pytest.mark.slow]


def test_each_mistake_says_what_the_page_says() -> None:
    made, told = page(), (PROJECT / "docs" / "mistakes.md").read_text(encoding="utf-8")
    assert re.split(r"^## ", made, flags=re.MULTILINE) == re.split(r"^## ", told, flags=re.MULTILINE)
