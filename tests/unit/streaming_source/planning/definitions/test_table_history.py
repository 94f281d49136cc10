"""Changes of tables in a relay log: where batches end because of them, and which part of a range has which tables."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from replica.errors import ColumnsAddedError, ConfigError, SchemaError
from replica.protocol.gtid import Gtid, GtidPosition
from replica.relay_log.walks import ddl
from replica.rows.types.types import ValuePolicy
from streaming_source.offsets.offset import SourceOffset
from streaming_source.offsets.selection import Selection
from streaming_source.planning.definitions.table_history import TableHistory
from streaming_source.ranges.cutting import SchemaStretch
from streaming_source.ranges.places import OffsetPlace
from streaming_source.schema.changes import SchemaChanges
from streaming_source.schema.row_schema import TableColumn
from streaming_source.schema.table_state import CatalogOrigin, SchemaStore
from streaming_source.selection.resolver import SelectedTables
from tests.kit.relay.driving import receive
from tests.unit.schema.ddl import history as declared
from tests.unit.schema.ddl import table
from tests.unit.streaming_source.feeds.relay_feed import RelayFeed

if TYPE_CHECKING:
    from pathlib import Path

    from streaming_source.options.source_options import OnSchemaChange

T = ("d", "t")
LOADED = table("id INT, a INT")
COLUMNS = (TableColumn("id", "INT"), TableColumn("a", "INT"))
FIRST = CatalogOrigin(GtidPosition(), described=False)
POLICY = ValuePolicy()


class Log(RelayFeed):
    """Groups 0-1-1, 0-1-2, …: a statement each, or a transaction where the text is empty."""

    def write(self, *texts: str, domain: int = 0, first: int = 1) -> Log:
        self.primary.connect()
        for number, text in enumerate(texts, first):
            gtid = Gtid(domain, 1, number)
            if text:
                self.primary.statement(gtid, text=text.encode())
            else:
                self.primary.transaction(gtid, rows=(20,))
        receive(self._writer, self.primary.wire())
        return self

    def history(
        self, mode: OnSchemaChange = "ignore", *, origin: CatalogOrigin | None = FIRST, **more: object
    ) -> TableHistory:
        tables = SelectedTables(("d.t",), {} if origin and origin.from_rows else {T: LOADED})
        changes = SchemaChanges(mode, COLUMNS, {T: LOADED}, POLICY)
        return TableHistory(tables, origin, changes, SchemaStore(None), **more)  # type: ignore[arg-type]

    def place(self, position: str) -> OffsetPlace:
        location = self.log.locate(GtidPosition.parse(position))
        assert location is not None
        return OffsetPlace.exactly(location)

    def stretches(self, history: TableHistory, start: SourceOffset) -> list[tuple[SchemaStretch, list[str] | None]]:
        found = history.stretches(self.log, start, self.place(str(start.position)), self.head().location)
        return [(stretch, _names(stretch)) for stretch in found]


def _names(stretch: SchemaStretch) -> list[str] | None:
    schema = dict(stretch.catalog).get(T, LOADED)
    return None if schema is None else [column.name for column in schema.columns]


def offset(position: str = "", schema: str | None = None) -> SourceOffset:
    parsed = GtidPosition.parse(position)
    return SourceOffset(parsed, parsed, schema=schema)


def test_a_range_is_divided_where_its_tables_change_over_all_its_files(tmp_path: Path) -> None:
    log = Log(tmp_path).write("", "ALTER TABLE d.t RENAME COLUMN a TO b", "")
    log.write("", "ALTER TABLE d.t ADD INDEX (b)", "ALTER TABLE d.t ADD c INT", first=4).write("", first=7)
    found = log.stretches(log.history(), offset())
    assert [names for _, names in found] == [["id", "a"], ["id", "b"], ["id", "b", "c"]]
    assert [stretch.end for stretch, _ in found[:-1]] == [stretch.begin for stretch, _ in found[1:]]
    assert found[1][0].begin == log.place("0-1-1").reached  # with the group of the statement itself
    assert found[2][0].begin == log.place("0-1-5").reached
    assert found[-1][0].end == log.head().location


def test_without_a_change_a_range_is_one_and_says_nothing(tmp_path: Path) -> None:
    log = Log(tmp_path).write("", "CREATE TABLE d.other (a INT)", "TRUNCATE d.t", "")
    ((stretch, _),) = log.stretches(log.history(), offset())
    assert stretch == SchemaStretch(log.place("").reached, log.head().location, ())


def test_the_state_goes_on_from_batch_to_batch_and_over_a_restart(tmp_path: Path) -> None:
    log = Log(tmp_path).write("", "ALTER TABLE d.t RENAME COLUMN a TO b", "", "ALTER TABLE d.t DROP id", "")
    history = log.history()
    start = history.starting(offset())
    middle = log.log.at(log.place("0-1-3").reached)
    assert history.admit(log.log, start, log.place(""), middle)[0] == middle
    schema = history.admit(log.log, start, log.place(""), middle)[1]
    for planner in (history, log.history()):
        again = offset("0-1-3", schema)
        assert [names for _, names in log.stretches(planner, again)] == [["id", "b"], ["b"]]


def test_rows_that_describe_themselves_leave_no_trace_in_offsets(tmp_path: Path) -> None:
    log = Log(tmp_path).write("", "ALTER TABLE d.t RENAME COLUMN a TO b", "")
    history = log.history(origin=CatalogOrigin(GtidPosition(), described=True))
    assert history.starting(offset()).schema is None
    assert history.admit(log.log, offset(), log.place(""), log.head()) == (log.head(), None)
    assert log.history(origin=None).admit(log.log, offset(), log.place(""), log.head()) == (log.head(), None)


@pytest.mark.parametrize(
    ("mode", "sql", "error"),
    [
        ("fail", "ADD b INT", "B is new"),
        ("fail", "DROP a", "A is dropped"),
        ("fail", "MODIFY a SMALLINT", "A is SMALLINT instead of INT"),
        ("fail", "RENAME COLUMN a TO b", "B is new, a is dropped"),
        ("add", "ADD b INT", "New columns: b"),
        ("add", "ADD b INT, DROP a", "B is new, a is dropped"),
        ("ignore", "MODIFY a BIGINT", "becomes BIGINT, and in the query it is INT"),
        ("add", "MODIFY a VARCHAR(9)", r"becomes STRING, .*new checkpoint"),
    ],
)
def test_a_batch_ends_right_before_what_it_may_not_go_over(
    tmp_path: Path, mode: OnSchemaChange, sql: str, error: str
) -> None:
    log = Log(tmp_path).write("", "", f"ALTER TABLE d.t {sql}", "")
    history = log.history(mode)
    start = history.starting(offset())
    head, schema = history.admit(log.log, start, log.place(""), log.head())
    assert str(head.position) == "0-1-2"
    with pytest.raises(SchemaError, match=f"transaction 0-1-3: ALTER TABLE .*{error}") as caught:
        history.admit(log.log, offset("0-1-2", schema), log.place("0-1-2"), log.head())
    assert isinstance(caught.value, ColumnsAddedError) == error.startswith("New")


@pytest.mark.parametrize(
    ("mode", "sql"),
    [
        ("ignore", "ADD b INT, DROP a"),
        ("ignore", "MODIFY a SMALLINT"),
        ("fail", "ADD INDEX (a), COMMENT 'x'"),
        ("fail", "MODIFY a INT COMMENT 'x' FIRST"),
        ("add", "ENGINE=InnoDB"),
    ],
)
def test_other_changes_are_gone_over(tmp_path: Path, mode: OnSchemaChange, sql: str) -> None:
    log = Log(tmp_path).write("", f"ALTER TABLE d.t {sql}", "DROP TABLE d.t")
    assert log.history(mode).admit(log.log, offset(), log.place(""), log.head())[0] == log.head()


def test_what_the_query_was_loaded_with_is_no_news(tmp_path: Path) -> None:
    log = Log(tmp_path).write("", "ALTER TABLE d.t ADD a INT", "ALTER TABLE d.t ADD b INT", "")
    before = TableHistory(
        SelectedTables(("d.t",), {T: table("id INT")}),
        FIRST,
        SchemaChanges("fail", None, {T: table("id INT")}, POLICY),
        SchemaStore(None),
    )
    start = before.starting(offset())
    history = log.history("fail")  # loaded with a, not with b
    head, _ = history.admit(log.log, start, log.place(""), log.head())
    assert str(head.position) == "0-1-2"


def test_a_table_known_from_its_rows_alone_is_watched_and_no_row_is_read_with_it(tmp_path: Path) -> None:
    log = Log(tmp_path).write("", "ALTER TABLE d.t ADD b INT", "")
    history = log.history("fail", origin=CatalogOrigin(GtidPosition(), described=True, from_rows=LOADED))
    head, _ = history.admit(log.log, offset(), log.place(""), log.head())
    assert str(head.position) == "0-1-1"
    ((stretch, _),) = log.stretches(history, offset())
    assert stretch.catalog == ()


def test_rows_before_a_change_that_the_catalog_knew_have_to_name_their_columns(tmp_path: Path) -> None:
    log = Log(tmp_path).write("", "ALTER TABLE d.t ADD a INT", "", "ALTER TABLE d.t RENAME COLUMN a TO b", "")
    ahead = CatalogOrigin(GtidPosition.parse("0-1-2"), described=False)
    history = log.history(origin=ahead)
    start = SourceOffset(GtidPosition(), GtidPosition(), anchor=True, schema=history.starting(offset()).schema)
    assert [names for _, names in log.stretches(history, start)] == [None, ["id", "a"], ["id", "b"]]
    assert history.admit(log.log, start, log.place(""), log.head())[0] == log.head()
    later = history.admit(log.log, start, log.place(""), log.log.at(log.place("0-1-1").reached))[1]
    with pytest.raises(SchemaError, match=r"0-1-2 changed d\.t: ALTER TABLE d\.t ADD a INT.*schemaFile"):
        history.admit(log.log, offset("0-1-1", later), log.place("0-1-1"), log.head())


def test_a_table_that_the_checkpoint_did_not_ask_for_yet_is_as_it_was_read_for_this_start(tmp_path: Path) -> None:
    log = Log(tmp_path).write("", "ALTER TABLE d.t ADD a INT", "", "ALTER TABLE d.t RENAME COLUMN a TO b", "")
    other = SelectedTables(("d.other",), {("d", "other"): replace(table("x INT"), table="other")})
    changes = SchemaChanges("ignore", None, other.catalog, POLICY)
    before = TableHistory(other, FIRST, changes, SchemaStore(None)).starting(offset("0-1-1"))
    before = replace(before, selection=Selection("variant", ("d.other",)))
    ahead = log.history(origin=CatalogOrigin(GtidPosition.parse("0-1-3"), described=False))
    # Rows of before the ALTER that the catalog knew have to name their columns; none of them was delivered yet.
    assert [names for _, names in log.stretches(ahead, before)] == [None, ["id", "a"], ["id", "b"]]
    end, schema = ahead.admit(log.log, before, log.place("0-1-1"), log.head())
    assert end == log.head()
    again = replace(offset("0-1-5", schema), selection=Selection("variant", ("d.t",)))
    log.write("", first=6)
    assert [names for _, names in log.stretches(log.history(), again)] == [["id", "b"]]
    # Without that word of the checkpoint it might have been made since.
    (stretch, *_) = log.stretches(ahead, replace(before, selection=None))
    assert stretch[1] is None


def test_a_schema_file_says_what_tables_were_at_the_start(tmp_path: Path) -> None:
    log = Log(tmp_path).write("", "ALTER TABLE d.t RENAME COLUMN x TO a", "")
    ahead = CatalogOrigin(GtidPosition.parse("0-1-3"), described=False)
    history = log.history(origin=ahead, declared=declared("CREATE TABLE t (id INT, x INT)"))
    start = history.starting(offset())
    assert [names for _, names in log.stretches(history, start)] == [["id", "x"], ["id", "a"]]
    assert [names for _, names in log.stretches(log.history(origin=ahead), start)] == [["id", "x"], ["id", "a"]]


def test_groups_of_before_the_batch_are_not_done_twice_where_domains_interleave(tmp_path: Path) -> None:
    log = Log(tmp_path).write("ALTER TABLE d.t ADD b INT").write("", "ALTER TABLE d.t DROP b", domain=1)
    history = log.history()
    state = history.admit(log.log, history.starting(offset()), log.place(""), log.log.at(log.place("0-1-1").reached))[1]
    place = OffsetPlace(log.place("").reached, log.place("0-1-1").reached)
    found = log.history().stretches(log.log, offset("0-1-1", state), place, log.head().location)
    assert [_names(stretch) for stretch in found] == [["id", "a", "b"], ["id", "a"]]


def test_one_look_at_a_range_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(tmp_path).write("", "ALTER TABLE d.t ADD b INT", "")
    history = log.history()
    history.admit(log.log, offset(), log.place(""), log.head())
    monkeypatch.setattr(ddl, "logged_statements", None)
    assert len(log.stretches(history, offset())) == 2


def test_damage_in_an_offset_is_said(tmp_path: Path) -> None:
    log = Log(tmp_path).write("")
    with pytest.raises(ConfigError, match="tables stored with the checkpoint's offset are damaged"):
        log.stretches(log.history(), offset("", "damaged"))


def test_behind_a_gap_the_tables_are_read_again(tmp_path: Path) -> None:
    log = Log(tmp_path, begin="0-1-5").write("", "ALTER TABLE d.t ADD c INT", "", first=6)
    now = {T: table("id INT, b INT")}
    history = log.history(reread=lambda names: ({n: now[n] for n in names}, GtidPosition.parse("0-1-5")))
    start = history.starting(offset("0-1-3"))
    place = OffsetPlace.exactly(log.place("0-1-5").reached)
    found = history.stretches(log.log, start, place, log.head().location)
    assert [_names(stretch) for stretch in found] == [["id", "b"], ["id", "b", "c"]]
    without = log.history().stretches(log.log, start, place, log.head().location)
    assert [_names(stretch) for stretch in without] == [None]  # rows have to name their columns


def test_table_by_table_a_change_that_ends_other_queries_makes_one_table_unknown(tmp_path: Path) -> None:
    """Rows before it may have been read with later names: who follows each table has it read again."""
    log = Log(tmp_path).write("", "ALTER TABLE d.t ADD a INT", "", "ALTER TABLE d.t RENAME COLUMN a TO b", "")
    ahead = CatalogOrigin(GtidPosition.parse("0-1-2"), described=False)
    history = log.history(origin=ahead, table_by_table=True)
    start = SourceOffset(GtidPosition(), GtidPosition(), anchor=True, schema=history.starting(offset()).schema)
    schema = history.admit(log.log, start, log.place(""), log.log.at(log.place("0-1-1").reached))[1]
    later = offset("0-1-1", schema)
    assert history.admit(log.log, later, log.place("0-1-1"), log.head())[0] == log.head()
    assert [names for _, names in log.stretches(history, later)] == [None, ["id", "a"], ["id", "b"]]


def test_a_table_that_is_read_from_here_on_is_known_as_the_server_has_it(tmp_path: Path) -> None:
    """ALTER TABLE under sql_log_bin=0 is in no binlog: what is known holds from the reading on, over a restart too."""
    log = Log(tmp_path).write("", "", "ALTER TABLE d.t ADD c INT", "")
    now = {T: table("id INT, a INT, hidden INT")}
    asked: list[list[tuple[str, str]]] = []

    def reread(names: list[tuple[str, str]]) -> tuple[dict[tuple[str, str], object], GtidPosition]:
        asked.append(names)
        return dict(now), GtidPosition.parse("0-1-1")

    history = log.history(table_by_table=True, reread=reread)
    start = history.starting(offset("0-1-1"))
    assert [names for _, names in log.stretches(history, start)] == [["id", "a"], ["id", "a", "c"]]
    for _ in range(2):
        read = history.read_anew(start, [T])
    assert asked == [[T]]
    for planner in (history, log.history(table_by_table=True)):
        found = log.stretches(planner, offset("0-1-1", read.schema))
        assert [names for _, names in found] == [["id", "a", "hidden"], ["id", "a", "hidden", "c"]]
    assert log.history(reread=reread).read_anew(start, [T]) == start  # other queries go on as they are
