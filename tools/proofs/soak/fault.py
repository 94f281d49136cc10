"""Fault: a function of the soak and a random source, and the resources that it may not share with another fault."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tools.proofs.soak.daemon.soak import Soak


class NotPossible(Exception):  # noqa: N818  (no error: another fault takes its place)
    """The fault has no target at this moment."""


class Fault(NamedTuple):
    """`resource`: one, or several between spaces. `weight` is how often it is drawn, relative to the others."""

    name: str
    resource: str
    weight: int
    run: Callable[[Soak, random.Random], None]
