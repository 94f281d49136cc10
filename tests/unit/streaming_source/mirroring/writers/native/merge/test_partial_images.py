"""Net changes of images that lack columns end in what a dictionary holds that the same changes were made to."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_source.mirroring.writers.native.data_files import NativeWriteError
from streaming_source.mirroring.writers.native.merge import partial_images
from streaming_source.mirroring.writers.native.merge.partial_images import (
    KEPT,
    OmittedColumns,
    key_events,
    whole_rows,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

NAMES = ("id", "k", "v", "t")
KINDS = (pa.int32(), pa.string(), pa.int64(), pa.string())
DEFAULTS: dict[str, Any] = {"v": 5, "t": None}
OMITTED = OmittedColumns(NAMES, (True,) * 4, (None, None, pa.array([5], pa.int32()), pa.nulls(1)))
Row = dict[str, Any]
Image = tuple[str, Row]
"""`_change_type`, and the columns that the image has."""

VALUES = {"v": st.none() | st.integers(0, 9), "t": st.none() | st.sampled_from(("", "x", "é" * 40))}
IDENTITIES = st.tuples(st.integers(0, 2), st.sampled_from("ab"))
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(("update", "insert", "update", "delete", "update", "move")),
        IDENTITIES,
        IDENTITIES,
        st.fixed_dictionaries({}, optional=VALUES),
        st.sampled_from(("MINIMAL", "NOBLOB", "FULL", "FULL_NODUP")),
    ),
    min_size=4,
    max_size=12,
)


def batch(images: Sequence[Image], names: Sequence[str] = NAMES) -> pa.RecordBatch:
    columns = [pa.array([row.get(name) for _, row in images], kind) for name, kind in zip(names, KINDS, strict=True)]
    absent = [[name for name in names if name not in row] or None for _, row in images]
    more = [
        pa.array([kind for kind, _ in images], pa.string()),
        pa.nulls(len(images), pa.bool_()),
        pa.array(absent, pa.list_(pa.string())),
    ]
    return pa.RecordBatch.from_arrays([*columns, *more], ["0", "1", "2", "3", "_change_type", "_history", "_absent"])


def logged(before: Row | None, after: Row | None, given_columns: Sequence[str], image: str) -> list[Image]:
    """Return the images that a server logs of a change."""
    keys = ("id", "k")
    if before is None:
        assert after is not None
        there = NAMES if image.startswith("FULL") else (*keys, *given_columns)
        return [("insert", {name: after[name] for name in NAMES if name in there})]
    minimal = {name: before[name] for name in keys}
    old = before if image.startswith("FULL") else minimal if image == "MINIMAL" else {**minimal, "v": before["v"]}
    if after is None:
        return [("delete", old)]
    changed = {name: value for name, value in after.items() if value != before[name] or name in given_columns}
    new = after if image == "FULL" else {**after} if image == "NOBLOB" and "t" in changed else changed
    if image == "NOBLOB" and "t" not in changed:
        new = {name: value for name, value in after.items() if name != "t"}
    return [("update_preimage", old), ("update_postimage", new)]


def applied(table: dict[tuple[Any, ...], Row], found: pa.RecordBatch) -> dict[tuple[Any, ...], Row]:
    """Merge net changes as delta-rs does."""
    there = dict(table)
    for values in found.to_pylist():
        key = (values["0"], values["1"])
        if values["4"]:
            there.pop(key, None)
            continue
        kept = {name for number, name in enumerate(NAMES) if values.get(f"{KEPT}{number}")}
        new = {name: values[str(number)] for number, name in enumerate(NAMES)}
        there[key] = {name: there[key][name] if name in kept else value for name, value in new.items()}
    return there


@given(start=st.dictionaries(IDENTITIES, st.fixed_dictionaries(VALUES), min_size=3), changes=CHANGES)
def test_net_changes_lead_to_what_the_changes_do(start: dict[tuple[int, str], Row], changes: list[Any]) -> None:
    begun = {key: {"id": key[0], "k": key[1], **row} for key, row in start.items()}
    table, images = dict(begun), list[Image]()
    for kind, key, other, values, image in changes:
        if kind == "insert" and key not in table:
            table[key] = {"id": key[0], "k": key[1], **DEFAULTS, **values}
            images += logged(None, table[key], list(values), image)
        elif kind == "delete" and key in table:
            images += logged(table.pop(key), None, (), image)
        elif kind == "update" and key in table and values:
            old, table[key] = table[key], {**table[key], **values}
            images += logged(old, table[key], list(values), image)
        elif kind == "move" and key in table and other not in table:
            old = table.pop(key)
            table[other] = {**old, **values, "id": other[0], "k": other[1]}
            images += logged(old, table[other], list(values), "FULL")
    if not images:
        return
    found = key_events("current", batch(images), ("0", "1"), OMITTED)
    assert applied(begun, found) == table
    assert applied(table, found) == table  # a batch may come again


MOVED: list[Image] = [
    ("insert", {"id": 0, "k": "a", "v": 1}),
    ("update_preimage", {"id": 1, "k": "a", "v": 1}),
    ("update_postimage", {"id": 2, "t": "x"}),
    ("update_preimage", {"id": 2, "k": "a"}),
    ("update_postimage", {"v": 7}),
    ("update_preimage", {"id": 0, "k": "a"}),
    ("update_postimage", {"t": "y"}),
    ("delete", {"id": 0, "k": "a"}),
    ("delete", {"id": 3, "k": "a"}),
]


@pytest.mark.parametrize(
    ("mode", "events"),
    [
        ("history", [(0, 1, None), (0, 1, "y"), (0, 1, "y", "gone"), (1, 1, None, "gone"), (2, 1, "x"), (2, 7, "x")]),
        ("soft_delete", [(0, 1, "y", "gone"), (1, 1, None, "gone", "kept 3"), (2, 7, "x")]),
        ("current", [(0, 1, "y", "gone"), (1, 1, None, "gone"), (2, 7, "x")]),
    ],
)
def test_each_mode_takes_the_events_that_it_needs(mode: str, events: list[tuple[Any, ...]]) -> None:
    """Versions of one key each; a row that soft_delete marks keeps what the images do not say."""
    found = key_events(mode, batch(MOVED), ("0", "1"), OMITTED).to_pylist()
    shown = [
        (
            row["0"],
            row["2"],
            row["3"],
            *(["gone"] if row["4"] else []),
            *(f"kept {name.removeprefix(KEPT)}" for name, keeps in row.items() if name.startswith(KEPT) and keeps),
        )
        for row in found
    ]
    last = (3, None, None, "gone", *(("kept 2", "kept 3") if mode == "soft_delete" else ()))
    assert sorted(shown, key=lambda row: row[0]) == [*events, last]


def test_other_columns_follow_the_events() -> None:
    rows = batch(MOVED).append_column("_gtid", pa.array([f"0-1-{number}" for number in range(len(MOVED))]))
    assert key_events("current", rows, ("0", "1"), OMITTED).column("_gtid").to_pylist() == [
        *("0-1-7", "0-1-1", "0-1-4", "0-1-8")
    ]


def test_rows_of_a_table_without_a_key_are_made_whole() -> None:
    images: list[Image] = [
        ("insert", {"id": 0, "k": "a"}),
        ("update_preimage", {"id": 0, "k": "a", "v": 5, "t": None}),
        ("update_postimage", {"t": "x"}),
        ("delete", {"id": 0, "k": "a", "v": 5, "t": "x"}),
    ]
    found = whole_rows(batch(images), OMITTED).to_pylist()
    assert [tuple(row.values())[:5] for row in found] == [
        (0, "a", 5, None, "insert"),
        (0, "a", 5, None, "update_preimage"),
        (0, "a", 5, "x", "update_postimage"),
        (0, "a", 5, "x", "delete"),
    ]
    with pytest.raises(NativeWriteError, match="it has no key, and images of its rows lack t"):
        whole_rows(batch([("delete", {"id": 0, "k": "a", "v": 5})]), OMITTED)


@pytest.mark.parametrize(
    ("images", "left_out", "why"),
    [
        ([("insert", {"id": 1, "v": 1})], OMITTED, "leave out k"),
        ([("insert", {"id": 1, "k": "a"})], OMITTED._replace(values=(None,) * 4), "images of inserts leave out v"),
        (
            [("update_preimage", {"id": 1, "k": "a"}), ("update_postimage", {"v": 1})],
            OMITTED._replace(stored=(True, True, True, False)),
            "images of updates leave out t",
        ),
        ([("delete", {"id": 1, "v": 1})], OMITTED, "lack a column of the key"),
        ([("update_preimage", {"id": 1, "k": "a"}), ("update_postimage", {"id": 2})], OMITTED, "changed its key"),
        ([("update_postimage", {"id": 1, "k": "a"})], OMITTED, "not followed by"),
        ([("insert", {"id": 1})], OMITTED._replace(names=("id", "k", "v", "other")), "does not have"),
    ],
)
def test_what_is_not_known_is_refused(images: list[Image], left_out: OmittedColumns, why: str) -> None:
    with pytest.raises(NativeWriteError, match=why):
        key_events("current", batch(images), ("0", "1"), left_out)


def test_a_key_moves_if_the_two_images_have_all_columns_together() -> None:
    images = [("update_preimage", {"id": 1, "k": "a", "v": 1}), ("update_postimage", {"id": 2, "t": "x"})]
    found = key_events("current", batch(images), ("0", "1"), OMITTED).to_pylist()
    assert [tuple(row.values()) for row in found] == [(1, "a", 1, None, True), (2, "a", 1, "x", False)]


def test_versions_of_rows_and_too_many_values_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = batch([("delete", {"id": 1, "k": "a"})])
    place = rows.schema.get_field_index("_history")
    with pytest.raises(NativeWriteError, match="system-versioned"):
        key_events("current", rows.set_column(place, "_history", pa.array([True])), ("0", "1"), OMITTED)
    monkeypatch.setattr(partial_images, "MOST_CELLS", 3)
    with pytest.raises(NativeWriteError, match="too many for one task"):
        key_events("current", rows, ("0", "1"), OMITTED)


def test_slices_of_arrays_are_read_at_their_place() -> None:
    images: list[Image] = [("insert", {"id": number, "k": "a", "v": number}) for number in range(6)]
    whole = key_events("current", batch(images[2:5]), ("0", "1"), OMITTED)
    assert key_events("current", batch(images).slice(2, 3), ("0", "1"), OMITTED).equals(whole)
    assert list(itertools.chain(*whole.select(["0"]).to_pydict().values())) == [2, 3, 4]
