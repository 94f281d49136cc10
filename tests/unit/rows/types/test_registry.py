"""The registry is complete or does not load."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

from replica.rows.types import registry
from replica.rows.types.entry import KindEntry, SqlName, TypeEntry
from replica.rows.types.kinds import Kind
from replica.rows.types.registry import KEYWORDS, KINDS, NAMES, TYPE_OF_NAME, TYPES, by_keyword, by_kind
from tests.kit.tree import files

FAMILIES = Path(registry.__file__).parent / "values"


def loading(mutation: str) -> str:
    """What the interpreter says of the registry after `mutation`, Python code that runs before it is imported."""
    done = subprocess.run(
        [sys.executable, "-c", f"{mutation}\nimport replica.rows.types.registry"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode, "the registry was loaded"
    return done.stderr.splitlines()[-1]


def test_a_kind_without_an_entry_stops_the_import_with_its_name() -> None:
    said = loading("from replica.rows.types.values import numbers as f\nf.KINDS = f.KINDS[:2] + f.KINDS[3:]")
    assert said == "TypeError: no family under rows/types/values handles the kind INT16"


def test_a_kind_with_two_entries_is_refused_with_its_name() -> None:
    with pytest.raises(TypeError, match=r"Kind\.VECTOR.* has two entries"):
        by_kind([*KINDS.values(), replace(KINDS[Kind.VECTOR])], Kind)


@pytest.mark.parametrize("entry", [KINDS[Kind.UUID], TYPES[0]], ids=["kind", "type"])
def test_an_entry_that_lacks_a_field_is_refused_with_its_name(entry: KindEntry | TypeEntry) -> None:
    said = {field.name: getattr(entry, field.name) for field in fields(entry)}
    for name in ("kind", "binlog", *(("result_set", "key") if isinstance(entry, TypeEntry) else ())):
        with pytest.raises(TypeError, match=f"missing 1 required keyword-only argument: '{name}'"):
            type(entry)(**{field: value for field, value in said.items() if field != name})


def test_a_word_that_two_names_claim_is_refused() -> None:
    with pytest.raises(TypeError, match="the word INT stands for int and for integral"):
        by_keyword([*NAMES.values(), SqlName("integral", ("INT",))])


def test_every_kind_is_that_of_a_type() -> None:
    """Or what one of a type becomes by its sign, its digits, its character set or the policy."""
    chosen = {kind for entry in TYPES for kind in (entry.kind, entry.unsigned, entry.wide and entry.wide.kind)}
    chosen |= {instead for kind in chosen if kind for instead in (KINDS[kind].as_text, KINDS[kind].as_stored)}
    assert set(Kind) - chosen == {Kind.OPAQUE, Kind.LATIN1, Kind.ENCODED_TEXT}


def test_every_name_belongs_to_the_type_that_has_it() -> None:
    assert set(NAMES) == set(TYPE_OF_NAME)
    for name, entry in TYPE_OF_NAME.items():
        assert NAMES[name] in entry.names
    assert {name.name for name in KEYWORDS.values()} == set(NAMES) - {
        "json"
    }  # in DDL the word JSON stands for LONGTEXT
    assert {name.as_bytes for name in NAMES.values() if name.as_bytes} <= set(NAMES)


def test_every_family_is_gathered() -> None:
    """A file with entries that the registry does not know would be dead."""
    with_entries = {file.stem for file in files(FAMILIES, "*.py") if "\nTYPES" in file.read_text(encoding="utf-8")}
    gathered = {family.__name__.rpartition(".")[2] for family in registry._FAMILIES}
    assert with_entries == gathered
