"""The benchmark of the mirror on a few hundred changes: who takes part, and that all end in the same rows."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[3]
SMALL = ("--tables", "12", "--target-rows", "12000", "--changes", "240", "--rounds", "2")


def test_changes_by_every_way_and_their_ratios() -> None:
    """Where an engine's targets are not those of the mirror, the benchmark ends with an error."""
    command = [str(ROOT / "scripts" / "bench"), "mirror", "--only", "changes", *SMALL, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    table, _, told = done.stdout.rstrip().rpartition("\n")
    found = json.loads(told)
    with_debezium = "WITHOUT debezium" not in table
    ways = {"mirror", "native", "recipe", "held", "limit", *(["debezium"] if with_debezium else [])}
    assert set(found["changes"]["12"]) == ways
    for way in ways:
        assert f"changes  {way} " in table
    measured = {name for name, ratio in found["ratio"].items() if ratio is not None}
    assert measured == {
        "recipe",
        "recipe_native",
        "recipe_held",
        "recipe_limit",
        *(["debezium", "debezium_cpu"] if with_debezium else []),
    }
