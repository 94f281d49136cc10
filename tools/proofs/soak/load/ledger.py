"""Ledger of promises: every COMMIT that returned while semi-sync was on, until its transaction was found in the relay
log.

A returned COMMIT is a promise under these conditions. The primary runs with rpl_semi_sync_master_wait_no_slave=ON and a
timeout longer than any run, and the daemon is its only semi-sync replica. A COMMIT then returns for one of three
reasons. The daemon acknowledged it, semi-sync was off, or the waiting session was ended (a clean shutdown ends
sessions, and the OK may still be sent). Only faults cause the last two reasons. Such a fault suspends promises before
it begins and resumes them after its end. A COMMIT counts if it was sent while promises were on, and if they were still
on when its OK arrived.

The counter Rpl_semi_sync_master_no_times shows separately that the primary never switched semi-sync off by itself. If
the primary dies, promises of COMMITs that have returned remain valid.
"""

from __future__ import annotations

import threading
from typing import NamedTuple


class Mark(NamedTuple):
    """A row of the table `mark`: each transaction of these writers leaves one."""

    writer: int
    number: int


class Ledger:
    """Written by all writers, read by the judge."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._promise = 0
        self._holds = False
        self._fresh: list[str] = []
        self.promised = 0
        self.unpromised = 0
        self.unknown = 0
        self.broken = 0
        """COMMITs that returned although nothing could be acknowledged."""
        self._nothing_since: int | None = None
        self.marks: set[Mark] = set()
        """Promised ones: they must be in the tables at the end."""

    def promise(self) -> int | None:
        """What holds for a COMMIT that is sent now; None while nothing does."""
        with self._lock:
            return self._promise if self._holds else None

    def suspend(self) -> None:
        with self._lock:
            self._holds = False

    def resume(self) -> None:
        with self._lock:
            self._promise += 1
            self._holds = True

    def nothing_can_be_kept(self, *, from_now: bool) -> None:
        """Between the two calls no COMMIT that is sent can be acknowledged: one that returns is counted as broken."""
        with self._lock:
            self._promise += 1  # those under way may have been acknowledged just before
            self._nothing_since = self._promise if from_now else None

    def kept(self, promise: int | None, mark: Mark | None) -> bool:
        """An OK has come: whether the promise it was sent under held until now."""
        with self._lock:
            held = promise is not None and self._holds and promise == self._promise
            if held and self._nothing_since is not None:
                self.broken += 1
            if held:
                self.promised += 1
                if mark is not None:
                    self.marks.add(mark)
            else:
                self.unpromised += 1
            return held

    def named(self, gtid: str) -> None:
        """The GTID of a promised transaction, with `=` and the number it carries where others may have the same."""
        with self._lock:
            self._fresh.append(gtid)

    def lost(self) -> None:
        """No answer came: the transaction may be committed or not."""
        with self._lock:
            self.unknown += 1

    def take(self) -> list[str]:
        """The promised GTIDs since the last call."""
        with self._lock:
            fresh, self._fresh = self._fresh, []
            return fresh
