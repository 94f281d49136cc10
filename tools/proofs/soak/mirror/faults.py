"""Faults that the mirror's soak plants in a target: a flipped bit, a missing row, a doubled row, a stale row.

In: a driver, a kind, and a table that no DDL changes. Out: the planted fault, and the difference that an audit has to
report for it; None if the target has no suitable row. The mirror does not know of the fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from tools.proofs.soak.mirror.driver import Audited, AuditOfAll, MirrorDriver

SHOWN = {"flipped": "different", "missing": "missing", "doubled": "doubled", "stale": "different"}
"""The kinds of faults, and what an audit calls such a row."""
OLD_VERSIONS = 12
"""How far back a stale row may come from."""
_SOME = "result = [list(row) for row in spark.table({lake!r}).select(*{keys!r}).sort(*{keys!r}).collect()]"
_STALE = """
versions = [row[0] for row in spark.sql("DESCRIBE HISTORY {lake}").sort("version").select("version").collect()]
now = spark.table("{lake}")
result = None
for version in reversed(versions[-{most}:-1]):
    old = spark.sql(f"SELECT * FROM {lake} VERSION AS OF {{version}}")
    row = old.join(now.select(*{keys!r}), {keys!r}, "left_semi").select(*now.columns).exceptAll(now).first()
    if row is not None:
        result = [version, [row[key] for key in {keys!r}]]
        break
"""


class Planted(NamedTuple):
    """One fault, and the audit's words for it."""

    table: str
    kind: str
    key: Mapping[str, str]

    @property
    def audited(self) -> tuple[dict[str, int], list[tuple[str, dict[str, str]]]]:
        """The counts and the rows that an audit has to show."""
        shown = SHOWN[self.kind]
        return {shown: 1}, [(shown, dict(self.key))]


def plant(
    driver: MirrorDriver, chance: random.Random, kind: str, table: str, keys: Sequence[str], value: str
) -> Planted | None:
    """Plant a fault of a kind in a table; `value`: the number that a bit is flipped in."""
    lake = f"delta.`{driver.place.target(table)}`"
    version: int | None = None
    if kind == "stale":
        found = driver.run(_STALE.format(lake=lake, keys=list(keys), most=OLD_VERSIONS))
        if found is None:
            return None
        version, row = found
    else:
        rows = driver.run(_SOME.format(lake=lake, keys=list(keys)))
        if not rows:
            return None
        row = chance.choice(rows)
    key = dict(zip(keys, row, strict=True))
    driver.run(f"spark.sql({statement(kind, lake, key, value, 1 << chance.randrange(20), version)!r})")
    return Planted(table, kind, {column: str(each) for column, each in key.items()})


def statement(kind: str, lake: str, key: Mapping[str, object], value: str, bit: int, version: int | None = None) -> str:
    """Return what plants the fault, as Spark's SQL; `version`: where a stale row comes from."""
    where = " AND ".join(f"{column} = {each}" for column, each in key.items())
    same = " AND ".join(f"now.{column} = old.{column}" for column in key)
    old = f"(SELECT * FROM {lake} VERSION AS OF {version} WHERE {where})"
    return {
        "flipped": f"UPDATE {lake} SET {value} = {value} ^ {bit} WHERE {where}",
        "missing": f"DELETE FROM {lake} WHERE {where}",
        "doubled": f"INSERT INTO {lake} SELECT * FROM {lake} WHERE {where}",
        "stale": f"MERGE INTO {lake} now USING {old} old ON {same} WHEN MATCHED THEN UPDATE SET *",
    }[kind]


def check_found(planted: Sequence[Planted], found: AuditOfAll) -> None:
    """Check that an audit names the faults, of which no two are in one table, and nothing else."""
    wrong = {table: _told(one) for table, one in found.tables.items() if not one.equal}
    wanted = {one.table: one.audited for one in planted}
    assert wrong == wanted, f"planted {planted}, the audit at {found.position} found {wrong}"


def _told(one: Audited) -> tuple[dict[str, int], list[tuple[str, dict[str, str]]]]:
    return one.counts, one.differences
