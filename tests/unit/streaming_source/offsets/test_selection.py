"""What a checkpoint remembers of its selection: short, readable again, and compared by what it asks for."""

from __future__ import annotations

import json

import pytest

from replica.errors import ConfigError
from streaming_source.offsets import selection as selection_module
from streaming_source.offsets.selection import MAX_PACKED, MAX_PLAIN, NAMED, Selection

MANY = tuple(sorted(f"shop_{n % 7}.customer_orders_{n:05}" for n in range(1000)))
TOO_MANY = tuple(sorted(f"db{n * 7919 % 1000003:x}.t{n * 104729 % 1000003:x}" for n in range(9000)))


def variant(*tables: str, **more: object) -> Selection:
    return Selection("variant", tables, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "selection",
    [
        Selection("flat", ("shop.orders",)),
        variant("shop.*"),
        variant("crm.c", "shop.*", exclude=("*.log",), shadows=True, operations=("ddl", "insert"), skip_unchanged=True),
        variant(*MANY, exclude=MANY[:3]),
        variant("shop.*", unread=("shop.*",)),
    ],
    ids=["table", "pattern", "everything", "a thousand", "half hidden"],
)
def test_it_is_read_as_it_was_written(selection: Selection) -> None:
    text = json.dumps(selection.json())
    assert len(text) <= max(2 * MAX_PLAIN, len(MANY) * 8)
    again = Selection.parse(json.loads(text))
    assert again == selection
    assert json.dumps(again.json()) == text


def test_a_pack_is_kept_up_to_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(variant(*MANY).json()["packed"])
    for most, kept in ((size, "packed"), (size - 1, "digest")):
        monkeypatch.setattr(selection_module, "MAX_PACKED", most)
        assert list(selection_module._lists(variant(*MANY))) == [kept]


def test_a_damaged_pack_is_refused_whatever_stands_beside_it() -> None:
    for packed in ("eA==", "AAAA", "no base64"):
        with pytest.raises(ValueError, match=r"Expecting value|while decompressing|base64"):
            Selection.parse({"shape": "variant", "packed": packed, "tables": ["s.a"]})


def test_names_with_dots_are_read_as_they_were_written_and_older_ones_as_they_were_meant() -> None:
    selection = variant("`a.b`.t", "a.`b.t`")
    assert Selection.parse(selection.json()) == selection
    assert selection.change_to(variant("`a.b`.t")) is not None
    older = Selection.parse({"shape": "flat", "tables": ["shop.a,b"]})
    assert older.change_to(Selection("flat", ("shop.`a,b`",))) is None
    assert Selection.parse({"shape": "variant", "tables": ["a.t`x"]}).change_to(variant("a.`t``x`")) is None


def test_of_too_many_names_only_a_digest_is_kept_and_a_change_is_noticed_still() -> None:
    text = json.dumps(variant(*TOO_MANY).json())
    assert len(text) < 200 < MAX_PACKED
    remembered = Selection.parse(json.loads(text))
    assert remembered.change_to(variant(*TOO_MANY)) is None
    assert json.dumps(remembered.json()) == text
    change = remembered.change_to(variant(*TOO_MANY[1:]))
    assert change is not None
    assert "tables or excludeTables changed" in change.message("0-1-5")


@pytest.mark.parametrize(
    ("before", "now", "added", "removed"),
    [
        (variant("s.a"), variant("s.a", "s.b"), ("s.b",), ()),
        (variant("s.a", "s.b"), variant("s.b"), (), ("s.a",)),
        (variant("s.a", "s.b"), variant("s.*"), ("s.*",), ()),
        (variant("s.*"), variant("s.a"), (), ("s.*",)),
        (variant("s.*"), variant("s.*", "s.a"), (), ()),
        (variant("s.*", exclude=("s.a",)), variant("s.*"), ("s.a",), ()),
        (variant("s.*"), variant("s.*", exclude=("s.t*",)), (), ("s.t*",)),
        (variant("s.*", exclude=("s.t1",)), variant("s.*", exclude=("s.t*",)), (), ("s.t*",)),
        (variant("s.*"), variant("s.*", exclude=("o.x",)), (), ()),
        (variant("s.*", exclude=("o.x",)), variant("s.*"), (), ()),
        (variant("s.*"), variant("s.*", "o.*", exclude=("o.x",)), ("o.*",), ()),
    ],
)
def test_a_change_names_what_came_and_what_went(
    before: Selection, now: Selection, added: tuple[str, ...], removed: tuple[str, ...]
) -> None:
    change = before.change_to(now)
    assert (added, removed) == ((), ()) if change is None else (change.added, change.removed) == (added, removed)
    message = "" if change is None else change.message("0-1-5")
    assert ("added " in message, "removed " in message) == (bool(added), bool(removed))
    assert all(name in message for name in (*added, *removed))


def test_other_kinds_of_changes_are_named_too() -> None:
    change = variant("s.*").change_to(variant("s.*", shadows=True, operations=("insert",), skip_unchanged=True))
    assert change is not None
    assert change.json("0-1-5") == {
        "behind": "0-1-5",
        "options": [
            "includeShadowTables was false and is true",
            "operations was delete,insert,update and is insert",
            "skipUnchanged was false and is true",
        ],
    }


def test_only_of_tables_that_came_in_a_copy_is_asked_for() -> None:
    for now, copy in ((variant("s.*", operations=("insert",)), False), (variant("s.a"), False), (variant("*.*"), True)):
        change = variant("s.*").change_to(now)
        assert change is not None
        assert ("rows of an added table are needed" in change.message("0-1-5")) is copy


def test_what_the_account_could_see_is_no_change() -> None:
    assert variant("s.*", unread=("s.*",)).change_to(variant("s.*")) is None
    assert variant("s.*", unread=MANY).json()["unread"] == ["*.*"]


def test_a_long_change_stays_short() -> None:
    change = variant("a.a").change_to(variant(*MANY))
    assert change is not None
    assert f"{MANY[NAMED - 1]} and {len(MANY) - NAMED} more, without" in change.message("0-1-5")
    assert len(change.json("0-1-5")["added"]) == NAMED


@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        (
            Selection("flat", ("s.a",)),
            Selection("flat", ("s.b",)),
            r"belongs to a query of table s\.a, and this query reads s\.b\.",
        ),
        (Selection("flat", ("s.a",)), Selection("envelope", ("s.a",)), "rowShape=flat, and this query .*envelope"),
        (Selection("envelope", ("s.a",)), variant("s.a"), r"table=s\.a .* this query has tables \(rows as VARIANT"),
    ],
)
def test_another_table_or_another_shape_is_refused(before: Selection, now: Selection, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        before.change_to(now)
