"""Text and its UTF-8 lose the same characters, and no others."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from replica.commands.dump.text import visible, visible_bytes

UNSEEN = "\x7f\x80\x9b\x9f\u061c\u200b\u200e\u200f\u2028\u202e\u2060\u2069\ufeff"
SEEN = "aé€\u2027\u202f\u205f\u206a\xa0\u061b\ufefe😀\n"


def test_what_is_shown_and_what_is_named() -> None:
    assert visible(SEEN) == SEEN
    assert visible("a\u202eb") == "a\\u202eb"
    assert not any(character in visible(UNSEEN) for character in UNSEEN)


@settings(max_examples=300)
@given(st.text(st.sampled_from(UNSEEN + SEEN) | st.characters(exclude_categories=["Cs"])))
def test_bytes_are_the_text(text: str) -> None:
    assert bytes(visible_bytes(memoryview(text.encode()))) == visible(text).encode()


@given(st.binary())
def test_bytes_that_are_no_text_are_left_alone(data: bytes) -> None:
    found = bytes(visible_bytes(data))
    assert found == data or len(found) > len(data)
