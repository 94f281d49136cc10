"""A target in memory: the interface of writers over plain dictionaries, which crashes at a commit of one's choice.

`Stored` outlives a crash, as storage does. `ModelTarget` is what one try of a batch opens.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streaming_source.mirroring.statements.alterations import renamed
from streaming_source.mirroring.writers.target_format import (
    ROWS,
    AddColumns,
    Commit,
    DropColumns,
    RenameColumn,
    SetType,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streaming_source.mirroring.modes.mode import Mode, NetChanges
    from streaming_source.mirroring.statements.added_values import KnownValue
    from streaming_source.mirroring.writers.target_format import TargetAction
    from streaming_source.transforms.transformed_images import TargetColumn

Row = dict[str, object]


class CrashError(Exception):
    """The process ended before a commit."""


@dataclass
class Stored:
    """What storage holds. `left`: commits until the crash; None: there is none."""

    columns: dict[str, str]
    rows: list[Row]
    there: bool = True
    tokens: set[Commit] = field(default_factory=set)
    left: int | None = None

    def commit(self) -> None:
        """Crash, or go on to the next commit."""
        if self.left == 0:
            raise CrashError
        self.left = None if self.left is None else self.left - 1


class ModelTarget:
    """One target, open for one try of a batch."""

    name = "model"

    def __init__(self, stored: Stored) -> None:
        self._stored = stored

    @property
    def spark(self) -> Any:
        """There is none."""
        return None

    def exists(self) -> bool:
        return self._stored.there

    def properties(self) -> Mapping[str, str]:
        return {}

    def count(self) -> int:
        return len(self._stored.rows)

    def create(self, columns: Sequence[TargetColumn], comment: str, properties: Mapping[str, str]) -> None:  # noqa: ARG002  (the model has neither)
        self._stored.commit()
        self._stored.columns = {column.name: column.type for column in columns}
        self._stored.rows, self._stored.there = [], True

    def has(self, at: Commit) -> bool:
        rows = {at.of(part) for part in ROWS}
        return at in self._stored.tokens or (at not in rows and not rows.isdisjoint(self._stored.tokens))

    def _once(self, at: Commit, change: Callable[[], None]) -> None:
        assert self._stored.there, "a step on a target that was dropped"
        if not self.has(at):
            self._stored.commit()
            change()
            self._stored.tokens.add(at)

    def alter(self, columns: Sequence[TargetColumn], at: Commit, actions: Sequence[TargetAction] | None = None) -> None:
        assert actions is not None, columns
        for number, action in enumerate(actions):
            self._once(at.step(number), lambda action=action: self._change(action))  # type: ignore[misc]

    def _change(self, action: TargetAction) -> None:
        there, rows = self._stored.columns, self._stored.rows
        match action:
            case AddColumns():
                for column in action.columns:
                    assert column.name not in there
                    there[column.name] = column.type
                    rows[:] = [{**row, column.name: None} for row in rows]
            case DropColumns():
                for name in action.names:
                    del there[name]
                    rows[:] = [{key: value for key, value in row.items() if key != name} for row in rows]
            case RenameColumn(old, new):
                assert new not in there
                self._stored.columns = {new if name == old else name: kind for name, kind in there.items()}
                rows[:] = [{new if name == old else name: value for name, value in row.items()} for row in rows]
            case SetType(name, kind):
                assert name in there
                there[name] = kind

    def rename(self, names: Mapping[str, str | None], at: Commit) -> None:
        kept = {old: new for new, old in names.items() if old is not None}
        self.alter((), at, renamed(kept))

    def fill(self, values: Mapping[str, KnownValue], at: Commit) -> None:
        known = {name: value.content for name, value in values.items()}

        def fill() -> None:
            assert known.keys() <= self._stored.columns.keys()
            self._stored.rows[:] = [{**row, **known} for row in self._stored.rows]

        self._once(at, fill)

    def truncate(self, at: Commit) -> None:
        self._once(at, self._stored.rows.clear)

    def apply(self, mode: Mode, changes: NetChanges) -> None:
        """Insert, update and delete by the key `id`. The rows of the changes are pairs: a row, and whether it went."""
        assert mode.name == "current", "the model keeps no rows that ended"
        pairs: Any = changes.rows

        def merge() -> None:
            for row, gone in pairs:
                self._stored.rows[:] = [one for one in self._stored.rows if one["id"] != row["id"]]
                self._stored.rows += [] if gone else [self._fitting(row)]

        self._once(changes.at, merge)

    def end_rows(self, mode: Mode, statement: Any, at: Commit) -> None:
        raise NotImplementedError(mode.name, statement, at)

    def append(self, rows: Any, at: Commit) -> None:
        self._once(at, lambda: self._stored.rows.extend(map(self._fitting, rows)))

    def _fitting(self, row: Row) -> Row:
        assert row.keys() == self._stored.columns.keys()
        return dict(row)

    def finish(self, rows: int, at: Commit) -> None:
        """Do nothing: each append was seen at once."""

    def restore(self, row: Any) -> None:
        raise NotImplementedError(row)

    def drop(self) -> None:
        if self._stored.there:
            self._stored.commit()
            self._stored.there = False

    def rows_at(self, row: Any) -> Any:
        raise NotImplementedError(row)
