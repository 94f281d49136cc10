"""docs/daemon.md against the code: exit codes, log lines, metrics and file names are those of the sources."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from replica import errors
from replica.daemon import verdict

PROJECT = Path(__file__).resolve().parents[2]
PAGE = (PROJECT / "docs" / "daemon.md").read_text(encoding="utf-8")
OF_THE_DAEMON = (
    "client.py",
    "connect.py",
    "hosts.py",
    "room.py",
    "session.py",
    "daemon",
    "relay",
    "semisync",
    "handshake",
)
LEVELS = {"debug", "info", "warning", "error", "critical"}


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading."""
    after = PAGE.partition(f"### {heading}\n")[2]
    table = re.search(r"(?:^\|.*\n)+", after, re.MULTILINE)
    assert table is not None, heading
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[0].splitlines()[2:]]


def logged() -> dict[str, str]:
    """Every event the daemon's sources log with a literal name -> its level."""
    found: dict[str, str] = {}
    for name in OF_THE_DAEMON:
        place = PROJECT / "replica" / name
        for path in [place] if place.suffix else sorted(place.rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS:
                    target = ast.unparse(node.func.value)
                    if target.endswith("log") and node.args and isinstance(node.args[0], ast.Constant):
                        found[str(node.args[0].value)] = node.func.attr
    return found


def test_every_error_and_its_exit_code_is_explained() -> None:
    table = {int(row[0]): row for row in rows("Exit codes of `run`")}
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.ReplicaError) and kind is not errors.ReplicaError:
            assert kind.exit_code in table, kind
            if kind.__base__ is errors.ReplicaError:
                assert f"`{kind.__name__}`" in table[kind.exit_code][1]


def test_the_exit_codes_of_status_are_its_own() -> None:
    codes = {value for name, value in vars(verdict).items() if name.isupper() and isinstance(value, int)}
    assert {int(row[0]) for row in rows("Exit codes of `status`")} == codes


@pytest.mark.parametrize(("event", "level"), sorted(logged().items()))
def test_every_log_line_is_explained(event: str, level: str) -> None:
    table = {row[0].strip("`"): row[1] for row in rows("Log lines")}
    assert table.get(event) == level


def test_the_sources_are_found() -> None:
    assert {"connected", "receiving paused", "reader dropped", "failed"} <= set(logged())


def test_metrics_it_names_exist() -> None:
    source = (PROJECT / "replica" / "daemon" / "metrics.py").read_text(encoding="utf-8")
    named = set(re.findall(r"`mariadb_replica_(\w+)`", PAGE))
    assert len(named) > 5
    assert [name for name in sorted(named) if f'"{name.removesuffix("_total")}"' not in source] == []


def test_every_alert_rule_is_explained() -> None:
    rules = (PROJECT / "replica" / "packaging" / "prometheus-alerts.yml").read_text(encoding="utf-8")
    names = re.findall(r"alert: (\w+)", rules)
    assert len(names) > 5
    assert [name for name in names if f"| `{name}` |" not in PAGE] == []
