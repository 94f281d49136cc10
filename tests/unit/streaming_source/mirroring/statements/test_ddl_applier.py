"""Random statements and rows of a batch, broken off at any commits and tried again: the target has what the server has.

The target is a model in memory. `tests/mirroring/writers/test_writer_contract.py` holds the writers to the same.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from replica.schema.definition.session import StatementContext
from replica.schema.effects.effect import StatementEffect
from replica.schema.effects.history import SchemaHistory
from streaming_source.mirroring.batch.batch_facts import StatementRow, TableChanges
from streaming_source.mirroring.control.control_table import DROPPED, ControlRow, definition_text
from streaming_source.mirroring.modes.choose import mode_of
from streaming_source.mirroring.modes.mode import NetChanges
from streaming_source.mirroring.statements.ddl_applier import DdlApplier
from streaming_source.mirroring.writers.target_format import READS, Commit
from tests.mirroring.writers.target_model import CrashError, ModelTarget, Row, Stored
from tests.unit.streaming_source.mirroring import test_settings
from tests.unit.streaming_source.mirroring.control import test_control_table

if TYPE_CHECKING:
    from streaming_source.mirroring.writers.target_format import TableWriter

SESSION = StatementContext(database="shop")
FIRST = ("a", "b", "c")
SETTINGS = test_settings.settings(onDrop="drop")
COMMIT = Commit("m", 8, "0-1-99")


class Statement(NamedTuple):
    """A statement, and the table behind it: names of its columns, and its rows."""

    sql: str
    names: tuple[str, ...]
    rows: tuple[Row, ...]


def altered(
    names: tuple[str, ...], rows: tuple[Row, ...], new: dict[str, str | int | None], *actions: str
) -> Statement:
    """An ALTER behind which columns have values of old ones by name, or of a number."""

    def value(row: Row, of: str | int | None) -> object:
        return row[of] if isinstance(of, str) else None if of is None else str(of)

    after = tuple({"id": row["id"], **{name: value(row, of) for name, of in new.items()}} for row in rows)
    return Statement(f"ALTER TABLE orders {', '.join(actions)}", tuple(new), after)


@st.composite
def batches(draw: st.DrawFn) -> list[Statement]:
    names: tuple[str, ...] = FIRST
    rows: tuple[Row, ...] = tuple({"id": number, **dict.fromkeys(names, str(number))} for number in (1, 2))
    found: list[Statement] = []
    for number in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(("TRUNCATE", "add", "drop", "renew", "names", "wider")))
        same: dict[str, str | int | None] = {name: name for name in names}
        some = draw(st.permutations(names))
        match kind:
            case "TRUNCATE":
                found.append(Statement("TRUNCATE TABLE orders", names, ()))
            case "add":
                default = draw(st.none() | st.integers(-9, 9))
                told = "" if default is None else f" DEFAULT {default}"
                found.append(altered(names, rows, {**same, f"n{number}": default}, f"ADD n{number} INT{told}"))
            case "drop" if len(names) > 1:
                left: dict[str, str | int | None] = {name: name for name in names if name != some[0]}
                found.append(altered(names, rows, left, f"DROP {some[0]}"))
            case "renew":
                actions = f"DROP {some[0]}", f"ADD {some[0]} INT DEFAULT {number}"
                found.append(altered(names, rows, {**same, some[0]: number}, *actions))
            case "names":
                new: dict[str, str | int | None] = dict(zip(some, names, strict=True))
                actions = tuple(f"RENAME COLUMN {old} TO {name}" for name, old in new.items() if old != name)
                found.append(altered(names, rows, new, *actions) if actions else Statement("ANALYZE", names, rows))
            case _:
                found.append(altered(names, rows, same, f"MODIFY {some[0]} BIGINT"))
        names, rows = found[-1].names, found[-1].rows
    return [one for one in found if one.sql != "ANALYZE"]


def first_row() -> ControlRow:
    history = SchemaHistory()
    history.apply(f"CREATE TABLE orders (id INT PRIMARY KEY, {', '.join(f'{name} INT' for name in FIRST)})", SESSION)
    table = history.table("shop", "orders")
    assert table is not None
    row = test_control_table.row()
    defaults = dict.fromkeys(("id", *FIRST))
    return row._replace(source_table="orders", definition=definition_text(table), defaults=defaults)


def tried(stored: Stored, statements: list[Statement], rows: tuple[Row, ...] | None) -> ControlRow:
    """One try of the batch: its statements, and then a row that was read and a changed one, if there are rows."""
    target: TableWriter = ModelTarget(stored)
    part: Any = SimpleNamespace(
        settings=SETTINGS,
        target=target,
        row=first_row(),
        mode=mode_of("current", ("id",)),
        facts=TableChanges(),
        commit=COMMIT,
        new=False,
        replayed=True,
        spark=None,
    )
    sqls = [one.sql for one in statements] + ["DROP TABLE orders"] * (rows is None)
    DdlApplier(
        part,
        [
            StatementRow(0, 10 + number, 0, f"0-1-{10 + number}", StatementEffect(sql, SESSION), 1_000_000)
            for number, sql in enumerate(sqls)
        ],
    ).follow()
    if rows is not None:
        changes: Any = [(rows[0], False), (rows[0] | {"id": 1}, True)]
        target.apply(part.mode, NetChanges(changes, target, ["id"], (), partial=False, domains=False, at=COMMIT))
        read: Any = rows[1:]
        target.append(read, COMMIT.of(READS))
    row: ControlRow = part.row
    return row


@given(statements=batches(), crashes=st.lists(st.integers(0, 9), max_size=3), dropped=st.booleans())
@settings(max_examples=300, deadline=None)
def test_a_batch_that_is_tried_again_goes_on_where_it_ended(
    statements: list[Statement],
    crashes: list[int],
    dropped: bool,  # noqa: FBT001
) -> None:
    names = statements[-1].names if statements else FIRST
    before: list[Row] = [{"id": number, **dict.fromkeys(FIRST, str(number))} for number in (1, 2)]
    after = statements[-1].rows if statements else tuple(before)
    stored = Stored({"id": "INT", **dict.fromkeys(FIRST, "INT")}, [dict(row) for row in before])
    new = tuple({"id": number, **dict.fromkeys(names, "new")} for number in (2, 3))
    rows = None if dropped else new
    found = None
    for left in [*crashes, None, None]:  # the last one comes after a crash before the control table was written
        stored.left = left
        try:
            found = tried(stored, statements, rows)
        except CrashError:
            continue
    assert found is not None
    if dropped:
        assert found.state == DROPPED
        assert not stored.there
        return
    assert found.live, found.error
    assert set(stored.columns) == {"id", *names}
    kept = [row for row in after if row["id"] not in (1, 2)]
    assert sorted(stored.rows, key=lambda row: str(row["id"])) == [*kept, *new]
