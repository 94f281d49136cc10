"""docs/daemon-reference.md against the code: exit codes, log lines, metrics and file names are those of the sources."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from replica import errors
from replica.daemon.status import verdict
from tests.kit.places import reached

PROJECT = Path(__file__).resolve().parents[3]
PAGE = (PROJECT / "docs" / "daemon-reference.md").read_text(encoding="utf-8")
PROGRAM = "replica/daemon/run.py"
LEVELS = {name: name for name in ("debug", "info", "warning", "error", "critical")} | {"exception": "error"}


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading."""
    after = PAGE.partition(f"## {heading}\n")[2]
    table = re.search(r"(?:^\|.*\n)+", after, re.MULTILINE)
    assert table is not None, heading
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[0].splitlines()[2:]]


def texts(node: ast.expr, function: ast.AST) -> set[str]:
    """Return every text that an expression may be, by what is assigned to its names in the function around it."""
    match node:
        case ast.Constant(value=str() as text):
            return {text}
        case ast.IfExp():
            return texts(node.body, function) | texts(node.orelse, function)
        case ast.BinOp(op=ast.Add()):
            return {one + two for one in texts(node.left, function) for two in texts(node.right, function)}
        case ast.Name():
            assigned = (one for one in ast.walk(function) if isinstance(one, ast.Assign))
            values = (one.value for one in assigned if [ast.unparse(target) for target in one.targets] == [node.id])
            return set().union(*(texts(value, function) for value in values))
    raise AssertionError(f"which text a log line has cannot be read: {ast.unparse(node)}")


def logged() -> dict[str, str]:
    """Return the level of every event that the modules of the daemon's program log with structlog."""
    found: dict[str, str] = {}
    for name in sorted(reached(PROGRAM)):
        module = ast.parse((PROJECT / name).read_text(encoding="utf-8"))
        if "getLogger" in ast.dump(module):  # of the standard library: what it says is a sentence
            continue
        for function in (one for one in ast.walk(module) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)):
            for call in ast.walk(function):
                match call:
                    case ast.Call(func=ast.Attribute(attr=level, value=log), args=[event, *_]) if level in LEVELS:
                        if ast.unparse(log).endswith("log"):
                            events = texts(event, function)
                            assert events, f"{name}, line {call.lineno}: no text is assigned to the event"
                            found |= dict.fromkeys(events, LEVELS[level])
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


def test_every_log_line_is_explained_and_every_one_that_is_explained_is_logged() -> None:
    assert {row[0].strip("`"): row[1] for row in rows("Log lines")} == logged()


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
