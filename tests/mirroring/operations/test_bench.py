"""The benchmarks of the mirror at small sizes: who takes part, and that all copies are equal at the end."""

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


def test_large_tables_transactions_rows_and_rates_at_small_sizes() -> None:
    """An audit in each part ends the benchmark with an error if a copy differs."""
    sizes = ("--table-rows", "20000", "--tables", "11", "--transaction-gb", "0.02", "--row-mb", "2")
    rate = ("--rate", "400", "--rate-rows", "2000", "--minutes", "0.2")
    command = [str(ROOT / "scripts" / "bench"), "large", *sizes, *rate, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.rstrip().rpartition("\n")[2])
    assert found.keys() == {"table", "tables", "transaction", "row", "rate"}
    assert found["table"]["20000"].keys() >= {"load", "random 1", "newest 1", "audit"}
    assert found["tables"]["11"].keys() == {"start", "batch 10", "batch 11", "status", "audit"}
    steps = [*found["table"]["20000"].values(), *found["tables"]["11"].values(), found["rate"]["follow"]]
    assert all(step["jvm"] > 0 and step["server"] > 0 and step["cpu"] > 0 for step in steps)
    assert found["table"]["20000"]["load"]["spool"] > 0
    assert found["rate"]["lags"]
