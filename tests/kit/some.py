"""Values that a test goes through: a loop over none of them would check nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

Value = TypeVar("Value")


def some(values: Iterable[Value]) -> list[Value]:
    """Return the values as a list.

    Raises:
        AssertionError: there are none.
    """
    found = list(values)
    assert found, "there is nothing to check"
    return found
