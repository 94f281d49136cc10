"""Drivers of one mirror, one after the other: each runs the mirror to its end or until it is killed, and audits
targets.

In: a server, the tables, a folder for lake, checkpoint and relay log. Out: the states and audits of the mirror, and the
number of times that Spark found the machine too slow, after which the run is repeated. Raised: an AssertionError with
any other failure.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import psutil

from streaming_source.sinks.queries import TOO_SLOW
from tests.mirroring.session import session_settings
from tests.recipes.workbench import Workbench
from tools.proofs.soak.spark.driver import kill_application

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb

MOST_TRIES = 8
_START = """
from streaming_source import mirror
query = mirror(spark, **{arguments!r})
"""
_END = """
try:
    query.awaitTermination()
finally:
    query.stop()
"""
_FAILURE = "result = None if query.isActive else str(query.exception())"
_STATES = """
result = [
    [f"{{row.source_database}}.{{row.source_table}}", row.state, row.error, row.waits_for, row.position]
    for row in spark.table({control!r}).collect()
]
"""
_AUDIT = """
from streaming_source import audit
found = audit(spark, mirror={control!r}, **{server!r})
result = {{
    "position": found.position,
    "tables": {{
        one.table: [one.equal, one.source_rows, {{kind: count for kind, count in one.counts.items() if count}},
                    [[each.kind, dict(each.key)] for each in one.differences]]
        for one in found.tables
    }},
    "left_out": {{one.table: one.reason for one in found.left_out}},
}}
"""
_RESYNC = """
from streaming_source import mirror_resnapshot
mirror_resnapshot(spark, tables={tables!r}, into={into!r})
"""


class TableState(NamedTuple):
    """A table as the control table tells of it."""

    state: str
    error: str | None
    waits_for: str | None
    position: str


class Audited(NamedTuple):
    """What an audit found of a table."""

    equal: bool
    rows: int
    counts: dict[str, int]
    differences: list[tuple[str, dict[str, str]]]


class AuditOfAll(NamedTuple):
    """What an audit found."""

    position: str
    tables: dict[str, Audited]
    left_out: dict[str, str]


class CalledMirror(Protocol):
    """What a mirror is called with."""

    control: str
    server: Mapping[str, object]
    arguments: Mapping[str, Any]


class MirrorCalls:
    """Calls of a mirror in a driver, which `run` reaches; some drivers and their machines are slow."""

    place: CalledMirror
    too_slow = 0
    _started: Mapping[str, Any]

    def run(self, code: str) -> Any:
        """Run code in the driver; the `result` it leaves."""
        raise NotImplementedError

    def start(self, **more: object) -> None:
        """Start the mirror; it goes on until the driver is killed."""
        self._started = self.place.arguments | more
        self._patient(_START.format(arguments=self._started))

    def check(self) -> None:
        """Raise what the query ended with; start it again if Spark found the machine too slow."""
        failure = self.run(_FAILURE)
        if failure is not None:
            assert TOO_SLOW in failure, f"the mirror ended by itself: {failure}"
            self.too_slow += 1
            self.start_again()

    def start_again(self) -> None:
        """Start the mirror as it was started before."""
        self._patient(_START.format(arguments=self._started))

    def run_whole(self, **more: object) -> dict[str, TableState]:
        """Bring in what there is, and end; return the states of all tables."""
        arguments = self.place.arguments | {"trigger": {"availableNow": True}} | more
        self._patient(_START.format(arguments=arguments) + _END)
        return self.states()

    def states(self) -> dict[str, TableState]:
        return {name: TableState(*rest) for name, *rest in self.run(_STATES.format(control=self.place.control))}

    def read_again(self, tables: Collection[str]) -> None:
        """Ask the mirror to read tables again, as its user does."""
        self.run(_RESYNC.format(tables=sorted(tables), into=self.place.arguments["into"]))

    def audit(self, **more: object) -> AuditOfAll:
        found = self._patient(_AUDIT.format(control=self.place.control, server=self.place.server | more))
        tables = {}
        for table, (equal, rows, counts, differences) in found["tables"].items():
            tables[table] = Audited(equal, rows, counts, [(kind, key) for kind, key in differences])
        return AuditOfAll(found["position"], tables, found["left_out"])

    def _patient(self, code: str) -> Any:
        for number in range(1, MOST_TRIES + 1):
            try:
                return self.run(code)
            except AssertionError as error:
                if TOO_SLOW not in str(error) or number == MOST_TRIES:
                    raise
                self.too_slow += 1
                time.sleep(number)
        return None


class MirrorPlace:
    """Where a mirror lies, and what it is called with."""

    def __init__(self, server: MariaDb, tables: Collection[str], folder: Path, options: Mapping[str, object]) -> None:
        self.folder = folder
        self.lake = folder / "lake"
        self.control = f"delta.`{self.lake}/mirror_control`"
        self.server = {"host": server.host, "port": server.port, "user": "repl", "password": "replica-secret"}
        self.arguments: dict[str, Any] = {
            "tables": ",".join(tables),
            "into": f"{self.lake}/{{database}}/{{table}}",
            "checkpointLocation": f"{folder}/checkpoint",
            "relayDir": f"{folder}/relay",
            **self.server,
            **options,
        }

    def target(self, table: str) -> Path:
        return self.lake / table.replace(".", "/")


class MirrorDriver(Workbench, MirrorCalls):
    """One driver: `start` and `kill`, or `run_whole`; all of them share a folder, as on one machine."""

    place: MirrorPlace

    def __init__(self, place: MirrorPlace) -> None:
        folder = place.folder / "driver"
        folder.mkdir(exist_ok=True)
        super().__init__(session_settings(folder), folder, {})
        self.place = place

    def kill(self, *, whole: bool) -> None:
        """Kill the JVM and the Python driver, and all other processes of the application too (`whole`) or not."""
        own = psutil.Process(self._driver.pid)
        jvm = next((one for one in own.children() if "java" in one.name()), None)
        kill_application(self._driver, jvm, whole=whole)
