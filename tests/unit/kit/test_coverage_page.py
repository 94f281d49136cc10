"""docs/dev/coverage.md lists every module below the limit with its reason, and every kernel with its twin."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from tests.kit.places import PROJECT
from tools import coverage_page
from tools.coverage_page import LIMIT, PAGE, Figure, figures, folders, kernels, page, reasons

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

TEXT = PAGE.read_text(encoding="utf-8")
LINES = re.findall(r"^\| `([^`]+\.py)` \| ([\d.]+) % \| \d+ \| (.*) \|$", TEXT, re.MULTILINE)
BELOW = {module: (percent, reason) for module, percent, reason in LINES}
SUMMARY = {"covered_lines": 8, "num_statements": 10, "covered_branches": 1, "num_branches": 2}


def test_every_module_below_the_limit_has_its_reason() -> None:
    assert BELOW
    for module, (percent, reason) in BELOW.items():
        assert float(percent) < LIMIT
        assert len(reason.split()) > 3, f"no reason for {module}"
    assert all((PROJECT / module).is_file() for module in reasons())
    assert {module: BELOW[module][1] for module in reasons() if module in BELOW} == reasons()


def test_the_table_of_kernels_is_the_one_that_tests_hold() -> None:
    assert TEXT.endswith(kernels()), "python -m tools.coverage_page writes it"


def test_a_module_that_is_gone_leaves_the_page() -> None:
    line = "| `replica/gone.py` | 1.0 % | 9 | why |\n"
    assert coverage_page.without_what_is_gone(TEXT.replace("\n\n## Kernels", f"\n{line}\n## Kernels")) == TEXT


def test_statements_and_branches_count_alike_and_empty_modules_do_not() -> None:
    empty = dict.fromkeys(SUMMARY, 0)
    report = {"files": {"a/b.py": {"summary": SUMMARY}, "a/c.py": {"summary": SUMMARY}, "a/d.py": {"summary": empty}}}
    found = figures(report)
    assert found == [Figure("a/b.py", 9, 12), Figure("a/c.py", 9, 12)]
    assert folders(found) == [Figure("a", 18, 24)]
    assert "| `a/b.py` | 75.0 % | 3 | why |" in page(found, {"a/b.py": "why"})


def test_a_module_below_without_a_reason_fails_and_a_reason_without_a_module_is_taken_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report, written, known = tmp_path / "report.json", tmp_path / "page.md", tmp_path / "coverage.toml"
    monkeypatch.setattr(coverage_page, "PAGE", written)
    monkeypatch.setattr(coverage_page, "REASONS", known)
    known.write_text('"other.py" = "gone since a year"\n')
    report.write_text(json.dumps({"files": {"a/b.py": {"summary": SUMMARY}, "a/kernel_b.py": {"summary": SUMMARY}}}))
    assert coverage_page.main([str(report), "--write", "--ran", "A part"]) == 0
    assert "A part ran. Together: 75.0 % of 12 statements and branches, in 1 modules." in written.read_text()
    assert f"| {coverage_page.LEFT_OUT} |" in written.read_text()
    assert coverage_page.main([str(report), "--write"]) == 1
    assert "a/b.py is below" in capsys.readouterr().err
    assert coverage_page.reasons() == {}
    known.write_text('"a/b.py" = "because it is so"\n')
    assert coverage_page.main([str(report), "--write"]) == 0
    assert coverage_page.reasons() == {"a/b.py": "because it is so"}
    assert "| because it is so |" in written.read_text()
