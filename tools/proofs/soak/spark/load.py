"""Load of the Spark soak: one primary, and the soak's writers at full speed until the sinks lag far behind.

In: a version, a seed. Out: a primary that can crash and restart under load, the lag of a committed offset, and the
exact end of the load. The class has the interface of the pair of servers, which the writers expect. It makes no
promises, because no replica acknowledges.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Self

import pymysql

from tests.fixtures.mariadb import MariaDb, wait_until
from tools.proofs.soak.daemon.pair import DATABASE, OPTIONS, WRITER
from tools.proofs.soak.load.ledger import Ledger
from tools.proofs.soak.load.writers import make_writers

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from tools.proofs.soak.load.writer import Writer

END_TIMEOUT_S = 60.0
PAUSES = {"Small": 0.0, "Single": 0.0, "Bulk": 0.0, "Definitions": 1.0}
"""By kind of writer: most have none, but DDL without a pause would fill the server with tables, blobs the disk."""
XAER_RMFAIL = 1399
XAER_NOTA = 1397


class Load:
    """Use as a context manager; `open` is set while writers may write."""

    def __init__(self, version: str | None, seed: int, *, max_backlog: int) -> None:
        semi_sync = [option for option in OPTIONS if "semi-sync" not in option]
        self.primary = MariaDb(version, *semi_sync)
        self.open = threading.Event()
        self.crashed_logs: set[str] = set()
        """Binlogs that a kill -9 ended: the last group in them may be torn."""
        self._seed = seed
        self._max_backlog = max_backlog
        self._writers: list[Writer] = []
        self._life = threading.RLock()

    def __enter__(self) -> Self:
        self.primary.__enter__()
        try:
            self.primary.add_user()
            self.primary.add_user(*WRITER, grants="ALL PRIVILEGES")
            self._writers = make_writers(self, Ledger(), self._seed)  # type: ignore[arg-type]
        except BaseException:
            self.primary.__exit__()
            raise
        for writer in self._writers:
            writer.pause_s = PAUSES.get(type(writer).__name__, writer.pause_s)  # type: ignore[misc]
            writer.start()
        self.open.set()
        return self

    def __exit__(self, *exc: object) -> None:
        for writer in self._writers:
            writer.ending.set()
        for writer in self._writers:
            writer.join(END_TIMEOUT_S)
        self.primary.__exit__(*exc)

    @property
    def transactions(self) -> int:
        return sum(writer.done for writer in self._writers)

    def check(self) -> None:
        for writer in self._writers:
            if writer.failure is not None:
                raise AssertionError(f"the load failed: {writer.name}: {writer.failure!r}") from writer.failure

    # -- pace ------------------------------------------------------------------------------------------------------

    def binlogs(self) -> list[Path]:
        return sorted(path for path in self.primary.datadir.glob("bin.*") if path.suffix[1:].isdigit())

    def backlog(self, offset: dict[str, object]) -> int:
        """Bytes of binlog behind a committed offset; all of them where it does not say."""
        server = offset.get("server") or {}
        file, position = str(server.get("file", "")), int(server.get("position", 0))  # type: ignore[attr-defined]
        sizes = [(path.name, path.stat().st_size) for path in self.binlogs()]
        return sum(size - (position if name == file else 0) for name, size in sizes if name >= file)

    def pace(self, backlog: int) -> None:
        """Writers rest while the sinks are too far behind: they have to catch up between two kills some day."""
        if backlog > self._max_backlog:
            self.open.clear()
        elif backlog < self._max_backlog // 2:
            self.open.set()

    # -- the primary's life ----------------------------------------------------------------------------------------

    def crash(self, down_s: float) -> None:
        """kill -9; writers that no crash may interrupt (MyISAM, DDL, XA) are between two statements."""
        with self._life, self._at_rest():
            self.crashed_logs.add(self.binlogs()[-1].name)
            self.primary.kill()
            time.sleep(down_s)
            self.primary.start()

    def restart(self, down_s: float) -> None:
        with self._life, self._at_rest():
            self.primary.stop()
            time.sleep(down_s)
            self.primary.start()

    @contextlib.contextmanager
    def _at_rest(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for writer in self._writers:
                if not writer.atomic:
                    stack.enter_context(writer.turn)
            yield

    def some_fault(self, chance: random.Random) -> str:
        """One of both, named."""
        name, fault = chance.choice((("kill -9 of the primary", self.crash), ("restart of the primary", self.restart)))
        fault(chance.uniform(0, 1))
        return name

    # -- the end ---------------------------------------------------------------------------------------------------

    def finish(self) -> str:
        """Every writer comes back from its last step, every XA transaction is ended; gives the GTID position."""
        with self._life:
            for writer in self._writers:
                writer.ending.set()
            for writer in self._writers:
                writer.join(END_TIMEOUT_S)
                assert not writer.is_alive(), f"{writer.name} never came back from its last statement"
            self.check()
            for *_, xid in self.primary.sql("XA RECOVER"):
                wait_until(lambda name=xid: self._ended(name), f"the XA transaction {xid} can be ended")
            return self.primary.gtid_binlog_pos()

    def _ended(self, xid: str | bytes) -> bool:
        name = xid.decode() if isinstance(xid, bytes) else xid
        try:
            self.primary.sql("SET gtid_domain_id = 5", f"XA COMMIT '{name}'")
        except pymysql.err.OperationalError as error:
            if error.args[0] not in {XAER_NOTA, XAER_RMFAIL}:  # its session is being ended
                raise
            return False
        return True

    def changing_tables(self, fixed: Collection[str]) -> list[str]:
        """All but those."""
        names = self.primary.sql(f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{DATABASE}'")
        return sorted(name for (name,) in names if name not in fixed)
