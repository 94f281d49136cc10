"""Rows whose changes lack columns: moved forward they are those of the table, or it is said that they are not known.

The oracle is that of test_window.py, the table's history replayed row by row; here its changes are logged as servers
log them with binlog_row_image MINIMAL and FULL_NODUP (measured on 10.5 to 11.8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replica.snapshot.images.key_states import PartialRowError, completed
from replica.snapshot.reconcile.reconciler import reconciled
from replica.snapshot.rows.row_block import TableKey
from tests.unit.snapshot.reconcile.test_window import (
    COLUMNS,
    NAME,
    WIDE,
    History,
    Log,
    block,
    content,
    event_groups,
    history_of,
    key_of,
)

if TYPE_CHECKING:
    from replica.snapshot.rows.row_block import RowBlock


def forward(known: Log, chunk: RowBlock, lower: int, place: int, *borders: bytes | None) -> list[tuple[int, str]]:
    states = known.window(lower, place).state_at(NAME, known.places[lower], known.places[place])
    return content(reconciled(chunk, states, *borders))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(groups=event_groups, data=st.data())
def test_what_changes_lack_is_as_it_was_read(
    tmp_path_factory: pytest.TempPathFactory, groups: list[tuple[object, ...]], data: st.DataObject
) -> None:
    """Only rows that took another key, which a window does not follow, and such as came and went, are not known."""
    history = history_of(groups, COLUMNS, "MINIMAL")
    known = history.log(tmp_path_factory.mktemp("log"), max_file_bytes=2000)
    last = len(known.places) - 1
    lower, seen, upper = sorted(data.draw(st.tuples(*[st.integers(0, last)] * 3)))
    begin, end = sorted(data.draw(st.tuples(st.integers(-1, 8), st.integers(-1, 11))))
    borders = data.draw(st.sampled_from([(begin, end), (None, end), (begin, None), (None, None)]))
    chunk = block(known.tables[seen], *borders)
    keys = [None if border is None else key_of(border) for border in borders]
    moves = any(step[0] in ("move", "swap", "shift") for group in groups for step in _steps_of(group))
    for place in range(upper, last + 1):
        try:
            found = forward(known, chunk, lower, place, *keys)
        except PartialRowError:
            assert moves
        else:
            assert found == content([block(known.tables[place], *borders)])


@pytest.mark.parametrize("columns", [COLUMNS, WIDE], ids=["one map", "two maps"])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(groups=event_groups, data=st.data())
def test_whole_images_before_a_change_tell_everything(
    tmp_path_factory: pytest.TempPathFactory,
    columns: list[object],
    groups: list[tuple[object, ...]],
    data: st.DataObject,
) -> None:
    """FULL_NODUP: at any place, before the reading too."""
    history = history_of(groups, columns, "FULL_NODUP")  # type: ignore[arg-type]
    known = history.log(tmp_path_factory.mktemp("log"))
    last = len(known.places) - 1
    lower, seen, upper = sorted(data.draw(st.tuples(*[st.integers(0, last)] * 3)))
    chunk = block(known.tables[seen], None, None)
    for place in range(last + 1):
        window = known.window(min(lower, place), max(upper, place))
        assert not window.lacks_columns(NAME, known.places[0], known.places[last])
        states = window.state_at(NAME, known.places[lower], known.places[place])
        assert content(reconciled(chunk, states, None, None)) == content([block(known.tables[place], None, None)])


def _steps_of(group: tuple[object, ...]) -> list[tuple[str, int, int]]:
    return group[1] if isinstance(group[1], list) else []


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(groups=event_groups, data=st.data())
def test_without_an_order_what_a_row_lacks_is_looked_for_in_every_chunk(
    tmp_path_factory: pytest.TempPathFactory, groups: list[tuple[object, ...]], data: st.DataObject
) -> None:
    known = history_of(groups, COLUMNS, "MINIMAL").log(tmp_path_factory.mktemp("log"))
    last = len(known.places) - 1
    lower, seen, upper = sorted(data.draw(st.tuples(*[st.integers(0, last)] * 3)))
    place, border = data.draw(st.integers(upper, last)), data.draw(st.integers(-1, 8))
    window = known.window(lower, place, TableKey("PRIMARY", (0,), ordered=False))
    first, second = block(known.tables[seen], None, border), block(known.tables[seen], border, None)
    states = window.state_at(NAME, known.places[lower], known.places[place])
    try:
        states = completed(states, first, 0, len(states), final=False)
        blocks = reconciled(first, states, None, None, puts=False)
        states = completed(states, second, 0, len(states), final=True)
        blocks += reconciled(second, states, None, None)
    except PartialRowError:
        assert any(step[0] in ("move", "swap", "shift") for group in groups for step in _steps_of(group))
    else:
        assert sorted(content(blocks)) == sorted(known.tables[place].items())


def test_a_row_that_was_there_under_another_key_is_not_guessed(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A swap sets nothing but keys: whether the row that was read is the one from before or after it, no one can tell.
    One that took a key which was free was read behind that.
    """
    history = History(images="MINIMAL")
    history.transaction([("put", 1, 1), ("put", 2, 2)], 0)
    history.transaction([("swap", 1, 2)], 0)
    history.transaction([("shift", 0, 0)], 0)
    known = history.log(tmp_path_factory.mktemp("log"))
    for seen in (1, 2):
        with pytest.raises(PartialRowError):
            forward(known, block(known.tables[seen], None, None), 1, 2, None, None)
    chunk = block(known.tables[3], 2, None)
    assert forward(known, chunk, 2, 3, key_of(2), None) == [(3, known.tables[3][3])]
    with pytest.raises(PartialRowError):
        forward(known, block(known.tables[2], 2, None), 2, 3, key_of(2), None)
