"""The audit as a program: its file, its options, its exit codes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from replica.errors import ConfigError
from streaming_source.auditing.program import NOT_COMPLETE, NOT_EQUAL, exit_code, read_arguments
from streaming_source.auditing.result import AuditResult, LeftOut
from tests.unit.streaming_source.auditing.test_result import LINES, ORDERS

PAGE = (Path(__file__).parents[4] / "docs" / "audit.md").read_text(encoding="utf-8")


def test_the_file_of_the_page_is_read_and_the_command_line_goes_before_it(tmp_path: Path) -> None:
    (toml,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    file = tmp_path / "audit.toml"
    file.write_text(toml, encoding="utf-8")
    told = read_arguments(file)
    assert told["tables"] == {"shop.orders": "lake.orders", "shop.lines": "/lake/lines@v12"}
    assert (told["at"], told["host"], told["ignore"]) == ("0-1-4711", "db1", ["loaded_at"])
    told = read_arguments(file, tables=["shop.x=/lake/x"], at="0-1-5", options=["host=db2", "invalidDates = text"])
    assert told["tables"] == {"shop.x": "/lake/x"}
    assert (told["at"], told["host"], told["invalidDates"], told["user"]) == ("0-1-5", "db2", "text", "repl")
    assert read_arguments(None, mirror="lake.mirror_control") == {"mirror": "lake.mirror_control"}


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_arguments(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("at = ", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"bad\.toml cannot be read"):
        read_arguments(tmp_path / "bad.toml")
    with pytest.raises(ConfigError, match=r"--table 'shop.orders' is not of the form"):
        read_arguments(None, tables=["shop.orders"])


def test_the_exit_code_tells_the_verdict() -> None:
    left = (LeftOut("shop.x", "reading"),)
    assert exit_code(AuditResult("", (ORDERS,))) == 0
    assert exit_code(AuditResult("", (ORDERS, LINES))) == NOT_EQUAL == 1
    assert exit_code(AuditResult("", (ORDERS,), left)) == NOT_COMPLETE == 3
    assert exit_code(AuditResult("", (LINES,), left)) == NOT_EQUAL
