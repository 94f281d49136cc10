"""Servers of one replica, which are tried in turn, and those that refused us for good.

A server may refuse because its binlog was reset, its account lacks a privilege, or its file is damaged. That does not
end a replica that has another server. The replica ends only after every server has refused without a useful connection
in between. A server that cannot be reached has not refused.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.errors import ReplicaError
    from replica.options.values import Endpoint


class Hosts:
    """Servers of one replica. `current` is the server in use, or the next one to try."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = tuple(endpoints)
        self._turn = 0
        self._refusals: dict[Endpoint, ReplicaError] = {}

    @property
    def current(self) -> Endpoint:
        return self._endpoints[self._turn]

    @property
    def several(self) -> bool:
        return len(self._endpoints) > 1

    def advance(self) -> None:
        self._turn = (self._turn + 1) % len(self._endpoints)

    def replace(self, endpoints: Sequence[Endpoint]) -> None:
        """Replace the servers. One that stays keeps its turn and its refusal."""
        current = self.current
        self._endpoints = tuple(endpoints)
        self._turn = self._endpoints.index(current) if current in self._endpoints else 0
        self._refusals = {one: said for one, said in self._refusals.items() if one in self._endpoints}

    def served(self) -> None:
        """Record that the current server was useful. Earlier refusals of other servers may no longer hold."""
        self._refusals.clear()

    def refused(self, error: ReplicaError) -> bool:
        """Record that the current server refused for good. Return True if the refusal is new."""
        before = self._refusals.get(self.current)
        self._refusals[self.current] = error
        return before is None or before.message != error.message

    @property
    def verdict(self) -> ReplicaError | None:
        """The error to raise once every server has refused.

        It has the type of the first refusal and names all of them.
        """
        if len(self._refusals) < len(set(self._endpoints)):
            return None
        first = self._refusals[self._endpoints[0]]
        if not self.several:
            return first
        error = copy.copy(first)
        error.message = f"every server refused. {self.refusals}"
        return error

    @property
    def refusals(self) -> str:
        """The servers that refused and their reasons, in words; empty if none did."""
        return " ".join(f"{endpoint}: {error.message}" for endpoint, error in self._refusals.items())
