"""The second look at rows that foreign keys may have changed behind the position, without a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from replica.schema.table import TableSchema
from streaming_source.auditing import comparison as second_look
from streaming_source.auditing.comparison import Probe, rechecks
from streaming_source.auditing.mirror.from_mirror import MirroredCopy
from streaming_source.auditing.result import KINDS, LeftOut, TableAudit

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import DataFrame, SparkSession

COPY = MirroredCopy(
    *(
        "shop.lines",
        "lake.lines@v1",
        "0-1-10",
        ("id",),
        "m",
        1,
        "current",
        None,
        TableSchema(database="shop", table="lines", columns=()),
    ),
    ancestors=frozenset({("shop", "orders")}),
)
SPARK = cast("SparkSession", None)


class World:
    """A mirror that is a batch and ten transactions further at each look at its control table, and what is compared."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *differing: set[int]) -> None:
        self.looks: list[tuple[str, bool]] = []
        self.differing = list(differing)
        self.batch = 1
        self.went = True
        self.moves = True
        self.clock = 0.0
        monkeypatch.setattr(second_look, "position_now", lambda *_: f"0-1-{10 * self.batch + 5}")
        monkeypatch.setattr(second_look, "_ancestors_changed", lambda *_: self.went)
        monkeypatch.setattr(second_look, "mirrored_copies", self._copies)
        monkeypatch.setattr(second_look.time, "sleep", self._sleep)
        monkeypatch.setattr(second_look.time, "monotonic", lambda: self.clock)

    def _sleep(self, seconds: float) -> None:
        self.clock += seconds

    def _copies(self, *_: object) -> tuple[list[MirroredCopy], list[LeftOut]]:
        self.batch += self.moves
        return [COPY._replace(batch=self.batch, position=f"0-1-{10 * self.batch}")], []

    def look(self, copy: MirroredCopy, before: DataFrame | None, *, last: bool) -> Probe:
        self.looks.append((copy.position, last))
        found = self.differing[min(len(self.looks), len(self.differing)) - 1]
        known = cast("set[int] | None", before)
        counted = found if known is None else found & known
        counts = dict.fromkeys(KINDS, 0) | {"extra": len(counted)}
        places: Any = (copy.table, copy.target, 1, copy.position, 5, 5, "a", "b", 256, len(counted), counts, ())
        audit = TableAudit(*places, ("id",), 0.1, cascaded=len(found) - len(counted))
        return Probe(audit, None if last or not found else cast("DataFrame", counted))


def looked(world: World, copy: MirroredCopy = COPY, *, repair: bool = False) -> TableAudit | LeftOut:
    return rechecks(SPARK, {}, "control", copy, world.look, repair=repair)


def test_what_is_equal_and_what_no_foreign_key_changes_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, set())
    assert cast("TableAudit", looked(world)).equal
    assert world.looks == [("0-1-10", False)]
    world = World(monkeypatch, {1})
    assert not cast("TableAudit", looked(world, COPY._replace(ancestors=frozenset()))).equal
    assert world.looks == [("0-1-10", True)]


def test_rows_that_went_behind_the_position_are_told_apart_from_one_that_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, {1, 2, 3}, {4, 5})
    found = cast("TableAudit", looked(world))
    assert (found.equal, found.cascaded, found.position) == (True, 2, "0-1-20")
    world = World(monkeypatch, {1, 2, 3}, {3, 4})
    found = cast("TableAudit", looked(world))
    assert (found.equal, found.counts["extra"], found.cascaded) == (False, 1, 1)
    assert [last for _, last in world.looks] == [False, False, True]


def test_where_no_rows_went_above_the_first_look_tells_and_a_repair_is_asked_for_by_one_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, {1})
    world.went = False
    assert cast("TableAudit", looked(world)).counts["extra"] == 1
    assert world.looks == [("0-1-10", False)]
    assert not cast("TableAudit", looked(world, repair=True)).equal
    assert world.looks[1:] == [("0-1-10", False), ("0-1-10", True)]
    # Of tables above that the mirror does not have nothing is known.
    assert cast("TableAudit", looked(World(monkeypatch, {1}, set()), COPY._replace(unknown=True))).equal


def test_behind_a_mirror_that_stands_still_it_cannot_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, {1})
    world.moves = False
    found = looked(world)
    assert isinstance(found, LeftOut)
    assert "foreign keys may have changed them after 0-1-10" in found.reason
    assert second_look.STILL_S < world.clock < second_look.STILL_S + 10
