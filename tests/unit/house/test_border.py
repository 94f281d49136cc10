"""The border between what receives and what decodes, as pyproject.toml draws it: every module of ours has its side."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
LIVE = "The live side never decodes a row"
DECODING = "Decoding never connects"
PROGRAMS = "Programs are for people: no other side imports one"
RECEIVES_AND_READS = {"replica.readers.primary", "replica.snapshot"}
"""What looks into a primary: into its binlog, by a replica of its own and readers of relay logs; into its tables."""


def contract(name: str) -> dict[str, Any]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (found,) = [one for one in settings["contracts"] if one["name"] == name]
    return found


def ours(modules: list[str]) -> set[str]:
    return {module for module in modules if module.startswith("replica.")}


def test_every_module_of_the_replica_is_on_one_side() -> None:
    """A new folder that no contract names could decode and connect at once, and nobody would be told."""
    folder = ROOT / "replica"
    there = {f"replica.{path.stem}" for path in folder.glob("*.py")} | {
        f"replica.{path.parent.name}" for path in folder.glob("*/__init__.py")
    }
    there = there - {"replica.readers"} | {
        f"replica.readers.{path.stem}" for path in (folder / "readers").iterdir() if path.stem[0] != "_"
    }  # on both sides: a room of its own for each reader
    sides = [
        ours(contract(LIVE)["source_modules"]),
        ours(contract(DECODING)["source_modules"]),
        ours(contract(PROGRAMS)["forbidden_modules"]),
        RECEIVES_AND_READS,
    ]
    assert sorted(module for side in sides for module in side) == sorted(there - {"replica.__init__"})


def test_no_contract_of_the_border_lets_an_import_pass_through_another_module() -> None:
    for name in (LIVE, DECODING, PROGRAMS):
        assert not contract(name).get("allow_indirect_imports", False)


def test_what_decodes_may_not_import_what_is_live() -> None:
    assert ours(contract(LIVE)["source_modules"]) | RECEIVES_AND_READS <= set(contract(DECODING)["forbidden_modules"])
