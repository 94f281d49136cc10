"""What Spark's writers have to hold, tried in a driver: a try that ends at any commit, one that comes late or twice.

In: a session and a folder. Out: what went wrong, as text; an empty list if nothing did. A crash is an error right
before the n-th commit of a try, so also right after the one before.
"""

from __future__ import annotations

import contextlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table import Transaction
from pyspark.sql import SparkSession
from pyspark.sql.readwriter import DataFrameWriterV2

from replica.schema.effects.effect import StatementEffect
from streaming_source.driver.own_session import own_session
from streaming_source.mirroring.batch.batch_facts import StatementRow
from streaming_source.mirroring.modes.choose import mode_of
from streaming_source.mirroring.modes.mode import NetChanges
from streaming_source.mirroring.statements.added_values import KnownValue
from streaming_source.mirroring.writers import delta, folder_target
from streaming_source.mirroring.writers.choose import control_store, open_target
from streaming_source.mirroring.writers.native import table_commits
from streaming_source.mirroring.writers.target_format import (
    READS,
    RESNAPSHOT,
    AddColumns,
    Commit,
    DropColumns,
    RenameColumn,
    SetType,
    parts_in,
)
from streaming_source.sinks.iceberg.catalogs import kind_of, register
from streaming_source.sinks.queries import SPARK_ERRORS
from streaming_source.transforms.transformed_images import TargetColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame

    from streaming_source.mirroring.writers.target_format import TableWriter

    Try = Callable[[TableWriter], object]

PROPERTIES = {
    "delta.columnMapping.mode": "name",
    "delta.enableDeletionVectors": "true",
    "mariadb.mirror": "m",
}
WRITES = ("ALTER", "DELETE", "MERGE", "UPDATE", "INSERT", "RESTORE")
NATIVE_COMMITS = (
    (delta, "remove_rows"),
    *((folder_target, name) for name in ("append_files", "merge_rows", "remove_rows")),
    (table_commits, "write_commit"),
)
"""Functions that make one commit without Spark."""
AT = Commit("m", 8, "0-1-99")
STATEMENT = AT.of("0-1-98:0")
ENDED = StatementRow(0, 90, 0, "0-1-90", StatementEffect(""), 1_790_000_000_000_000)


class CrashError(Exception):
    """The driver ended before a commit."""


def column(name: str, kind: str = "INT") -> TargetColumn:
    return TargetColumn(name, kind, nullable=True, comment="")


def _counting(whole: Callable[..., Any], commit: Callable[[], None]) -> Callable[..., Any]:
    def counted(*arguments: Any, **more: Any) -> Any:
        commit()
        return whole(*arguments, **more)

    return counted


@contextlib.contextmanager
def crash(left: int) -> Iterator[list[int]]:
    """Let no more commits through than so many, and count them; -1: all of them."""
    sql = SparkSession.sql
    counted = [0]

    def commit() -> None:
        if counted[0] == left:
            raise CrashError
        counted[0] += 1

    def counting_sql(self: SparkSession, statement: str, *rest: Any, **more: Any) -> Any:
        if statement.startswith(WRITES):
            commit()
        return sql(self, statement, *rest, **more)

    commits = ((DataFrameWriterV2, "append"), (Transaction, "commit_transaction"), *NATIVE_COMMITS)
    with pytest.MonkeyPatch.context() as patch:
        for cls in {cls for cls in (SparkSession, *SparkSession.__subclasses__()) if "sql" in vars(cls)}:
            patch.setattr(cls, "sql", counting_sql)
        for owner, name in commits:
            patch.setattr(owner, name, _counting(getattr(owner, name), commit))
        yield counted


def rows_of(spark: SparkSession, name: str) -> list[tuple[str, ...]]:
    found = open_target(spark, name).rows()
    return [tuple(found.columns), *sorted(tuple(map(str, row)) for row in found.collect())]


def rows(spark: SparkSession, text: str) -> DataFrame:
    return spark.sql(f"SELECT * FROM VALUES {text}")


def altered_and_filled(target: TableWriter) -> None:
    """An ALTER whose names change places, values of a new column, rows that were read, and changes."""
    actions = (
        DropColumns(("c",)),
        RenameColumn("a", "_renamed_0"),
        RenameColumn("b", "a"),
        RenameColumn("_renamed_0", "b"),
        SetType("n", "BIGINT"),
        AddColumns((column("c", "STRING"),)),
    )
    target.alter((), STATEMENT, actions)
    target.fill({"c": KnownValue("7")}, STATEMENT.step("values"))
    read = {"id": 3, "b": 31, "a": 32, "n": 5_000_000_000, "c": "new"}
    changed = {"id": 1, "b": 10, "a": 11, "n": 12, "c": "changed"}
    of_rows: Any = [read]
    of_changes: Any = [(changed, False)]
    if target.spark is not None:  # the model in memory takes rows as they are
        of_rows = target.spark.createDataFrame([read], "id INT, b INT, a INT, n BIGINT, c STRING")
        told = "_op STRING, id INT, b INT, a INT, n BIGINT, c STRING"
        of_changes = target.spark.createDataFrame([{"_op": "update", **changed}], told)
    target.append(of_rows, AT.of(READS))
    changes = NetChanges(of_changes, target, ["id"], list(read), partial=False, domains=False, at=AT, reduced=True)
    target.apply(mode_of("current", ("id",)), changes)


def emptied_and_filled(target: TableWriter) -> None:
    """TRUNCATE, and then rows of a table without a key: without a token they would come twice."""
    target.truncate(STATEMENT)
    target.append(rows(target.spark, "(1, 1, 1, 1, 1), (2, 2, 2, 2, 2) AS t(id, a, b, c, n)"), AT.of(READS))
    image = "named_struct('id', 3, 'a', 3, 'b', 3, 'c', 3, 'n', 3)"
    inserted = target.spark.sql(f"SELECT 'insert' AS op, {image} AS before, {image} AS after, false AS history")
    names = ["id", "a", "b", "c", "n"]
    target.apply(mode_of("current", ()), NetChanges(inserted, target, (), names, partial=False, domains=False, at=AT))


def read_again(target: TableWriter) -> None:
    """The beginning of a reading in a mode that keeps rows: other names, other types, all rows marked."""
    at = AT.of(RESNAPSHOT)
    mode = mode_of("soft_delete", ("id",))
    columns = [column("id"), column("b"), column("a", "STRING"), column("n", "BIGINT"), column("new")]
    target.rename({"id": "id", "a": "b", "b": "a", "n": "n", "new": None}, at.step("names"))
    target.alter(mode.columns(columns), at)
    mode.end_all(target, ENDED, "again", at)
    target.finish(1, at)


def made(spark: SparkSession, name: str, *, soft: bool) -> TableWriter:
    """A target with rows of the batch before."""
    target = open_target(spark, name)
    columns = tuple(map(column, ("id", "a", "b", "c", "n")))
    own = mode_of("soft_delete" if soft else "current", ("id",)).columns(columns)
    target.create(own, "", PROPERTIES)
    marks = ", false, NULL, NULL" if soft else ""
    told = rows(spark, f"(1, 11, 12, 13, 14{marks}), (2, 21, 22, 23, 24{marks})")
    target.append(told.toDF(*(each.name for each in own)), Commit("m", 7, "0-1-50", READS))
    return target


def broken_off(
    spark: SparkSession,
    folder: str,
    work: Try,
    *,
    native: bool = False,
    soft: bool = False,
    named: Callable[[str], str] = "delta.`{}`".format,
) -> list[str]:
    """Break a batch off before each of its commits, and try it again twice: the second try changes nothing."""

    def tried(number: int) -> list[tuple[str, ...]]:
        place = f"{folder}{number}"
        work(open_target(spark, named(place), folder=place if native else None))
        return rows_of(spark, named(place))

    made(spark, named(f"{folder}0"), soft=soft)
    with crash(-1) as commits:
        wanted = tried(0)
    wrong = []
    for left in range(1, commits[0]):
        made(spark, named(f"{folder}{left}"), soft=soft)
        with contextlib.suppress(CrashError), crash(left):
            tried(left)
            wrong.append(f"{left} of {commits[0]}: it was not broken off")
        found = [tried(left), tried(left)]
        if found != [wanted, wanted]:
            wrong.append(f"{left} of {commits[0]}: {found}, not {wanted}")
    return [*wrong, *([] if commits[0] > 2 else [f"it has {commits[0]} commits"])]


def added_columns(spark: SparkSession, folder: str) -> list[str]:
    """Columns that delta-rs adds are those that Spark adds. Spark adds them to a table that delta-rs must not write."""
    new = (
        column("x", "DECIMAL(38,9)")._replace(comment="it's new"),
        column("ÿ `", "TIMESTAMP_NTZ"),
        column("s", "STRING"),
    )
    found, wrong = {}, []
    made(spark, f"delta.`{folder}lacking`", soft=False)
    with contextlib.suppress(*SPARK_ERRORS):
        open_target(spark, f"delta.`{folder}lacking`", folder=f"{folder}lacking").alter(
            (), STATEMENT, [AddColumns(new)]
        )
        wrong.append("a table without timestampNtz has a column of this type")
    for place in ("spark", "native", "feed"):
        name = f"delta.`{folder}{place}`"
        made(spark, name, soft=False)
        spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES (delta.feature.timestampNtz = 'supported')")
        if place == "feed":
            spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")
        for _ in range(2):
            target = open_target(spark, name, folder=None if place == "spark" else f"{folder}{place}")
            target.alter((), STATEMENT, [AddColumns(new)])
        history = spark.sql(f"DESCRIBE HISTORY {name}").collect()
        ours = [row.engineInfo for row in history if "Spark" not in str(row.engineInfo)]
        wrong += [] if bool(ours) == (place == "native") else [f"{place}: {[row.engineInfo for row in history]}"]
        wrong += [] if parts_in(spark, name, STATEMENT) else [f"{place}: the token is missing"]
        table = DeltaTable(f"{folder}{place}")
        fields = json.loads(table.schema().to_json())["fields"]
        about = [{key: value for key, value in one["metadata"].items() if "physical" not in key} for one in fields]
        named = [(one["name"], one["type"], one["nullable"], about[number]) for number, one in enumerate(fields)]
        protocol = table.protocol()
        features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())} - {"changeDataFeed"}
        last = table.metadata().configuration["delta.columnMapping.maxColumnId"]
        found[place] = (named, sorted(features), last, rows_of(spark, name))
    return [*wrong, *(str(one) for one in found.values() if one != found["spark"])]


def late_and_twice(spark: SparkSession, name: str) -> list[str]:
    """Twins with one commit, a task of an older batch, and commits of others between them."""
    one, other = made(spark, name, soft=False), open_target(own_session(spark), name)
    told = "(3, 0, 0, 0, 0) AS t(id, a, b, c, n)"
    one.append(rows(spark, told), AT.of(READS))
    spark.sql(f"INSERT INTO {name} VALUES (100, 0, 0, 0, 0)")
    spark.sql(f"OPTIMIZE {name}")
    spark.sql(f"VACUUM {name}")
    other.append(rows(other.spark, told), AT.of(READS))
    late = Commit("m", 7, "0-1-50", READS)
    other.append(rows(other.spark, "(4, 0, 0, 0, 0) AS t(id, a, b, c, n)"), late)
    other.append(rows(other.spark, told), Commit("another", 1, "0-1-1", READS))  # whose tokens are its own
    found = [row[0] for row in rows_of(spark, name)[1:]]
    return [] if found == ["1", "100", "2", "3", "3"] else [f"rows {found}"]


def unfinished(spark: SparkSession, folder: str) -> list[str]:
    """Creations that ended before the first commit, of targets and control tables, in folders and in the catalog."""
    wrong = []
    columns = [column("id")]
    spark.sql(f"CREATE DATABASE IF NOT EXISTS broken_off LOCATION '{folder}/catalog'")
    for number, name in enumerate(["target", "control"] * 2):
        in_catalog = number > 1
        place = Path(folder, "catalog" if in_catalog else "folders", name)
        table = f"`broken_off`.`{name}`" if in_catalog else f"`delta`.`{place}`"

        def create(table: str = table, name: str = name) -> None:
            if name == "target":
                open_target(spark, table).create(columns, "", PROPERTIES)
            else:
                control_store(spark, table).make(columns, PROPERTIES)

        log = place / "_delta_log"
        (log / "_staged_commits").mkdir(parents=True)
        (log / ".00000000000000000000.json.5e7c1d0a.tmp").write_text("{")
        for owned in (place / "somebody.parquet", log / "00000000000000000007.json"):
            owned.write_text("somebody's")
            with contextlib.suppress(*SPARK_ERRORS):
                create()
                wrong += [f"{table} was made beside {owned.name}"] if open_target(spark, table).exists() else []
            if owned.read_text() != "somebody's":
                wrong.append(f"{owned.name} was removed")
            owned.unlink()
        create()
        wrong += [] if spark.table(table).columns == ["id"] else [f"{table} was not made"]
    spark.sql("DROP DATABASE broken_off CASCADE")
    return wrong


def iceberg_table(spark: SparkSession, folder: str, catalog: Mapping[str, str] | None = None) -> Callable[[str], str]:
    """Register a catalog, and return the function that names its tables by their places.

    Args:
        spark: the session.
        folder: the place of a table.
        catalog: the properties of the catalog; None: a database beside the folder.
    """
    settings = {
        "type": "sql",
        "uri": f"sqlite:///{folder}.db",
        "warehouse": f"file://{folder}.lake",
        "name": "contract",
    }
    kind = kind_of(register(catalog or settings))
    return lambda place: f"`{kind}`.`{Path(folder).parent.name}`.`{Path(place).name}`"


def iceberg_twins(spark: SparkSession, folder: str, catalog: Mapping[str, str] | None = None) -> list[str]:
    """Twins with one commit at the same time, a task of an older batch, and another writer between them."""
    name = iceberg_table(spark, folder, catalog)(folder)
    made(spark, name, soft=False)
    told = "(3, 0, 0, 0, 0) AS t(id, a, b, c, n)"
    sessions = [own_session(spark) for _ in range(3)]
    foreign = open_target(sessions[2], name)
    with ThreadPoolExecutor(3) as pool:
        twins = [pool.submit(open_target(one, name).append, rows(one, told), AT.of(READS)) for one in sessions[:2]]
        other = rows(sessions[2], "(100, 0, 0, 0, 0) AS t(id, a, b, c, n)")
        foreign.append(other, Commit("another", 1, "0-1-1", READS))
        for twin in twins:
            twin.result()
    open_target(spark, name).append(
        rows(spark, "(4, 0, 0, 0, 0) AS t(id, a, b, c, n)"), Commit("m", 7, "0-1-50", READS)
    )
    found = [row[0] for row in rows_of(spark, name)[1:]]
    return [] if found == ["1", "100", "2", "3"] else [f"rows {found}"]


def iceberg_unanswered(spark: SparkSession, folder: str, catalog: Mapping[str, str] | None = None) -> list[str]:
    """A commit whose answer is lost: it is in the target once, and the next try does nothing."""
    name = iceberg_table(spark, folder, catalog)(folder)
    target = made(spark, name, soft=False)
    whole = Transaction.commit_transaction

    def lost(self: Transaction) -> Any:
        whole(self)
        raise CommitStateUnknownException("504")

    Transaction.commit_transaction = lost  # type: ignore[method-assign]
    try:
        target.append(rows(spark, "(3, 0, 0, 0, 0) AS t(id, a, b, c, n)"), AT.of(READS))
    finally:
        Transaction.commit_transaction = whole  # type: ignore[method-assign]
    target.append(rows(spark, "(3, 0, 0, 0, 0) AS t(id, a, b, c, n)"), AT.of(READS))
    found = [row[0] for row in rows_of(spark, name)[1:]]
    return [] if found == ["1", "2", "3"] else [f"rows {found}"]


def parquet(spark: SparkSession, name: str) -> list[str]:
    """A batch in a folder of Parquet: its statement and its rows come as a whole, once."""
    target = open_target(spark, name)
    log = mode_of("append_log", ())
    columns = log.columns([column("id")])
    target.create(columns, "", {"mariadb.mirror": "m"})
    told = rows(spark, "(1)").toDF("id")
    wrong = []
    for number in (8, 8, 9):
        target = open_target(spark, name)
        at = Commit("m", number, f"0-1-{number}")
        wrong += [f"{number} is there"] if target.has(at) and number == 9 else []
        log.end_all(target, ENDED, "truncate", at.of("0-1-90:0"))
        target.append(told, at.of(READS))
        target.finish(1, at)
        wrong += [] if target.has(at) else [f"{number} is not there"]
    count = spark.sql(f"SELECT * FROM {name}").count()
    return [*wrong, *([] if count == 4 else [f"{count} rows"])]
