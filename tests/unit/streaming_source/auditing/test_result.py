"""An audit's result as text and JSON: docs/audit.md shows what it prints."""

from __future__ import annotations

import json
import re
from pathlib import Path

from streaming_source.auditing.result import KINDS, AuditResult, Difference, LeftOut, TableAudit

PAGE = Path(__file__).parents[4] / "docs" / "audit.md"


def audited(table: str, target: str, version: int | None, rows: int, *differences: Difference) -> TableAudit:
    counts = dict.fromkeys(KINDS, 0)
    for one in differences:
        counts[one.kind] += one.rows
    mine = "6bb18274f27c10ad83ae8d9e7ff1a2c1"
    return TableAudit(
        table=table,
        target=target,
        version=version,
        position="0-1-4711",
        source_rows=rows,
        target_rows=rows,
        source_hash=mine,
        target_hash="0" * 32 if differences else mine,
        buckets=256,
        differing_buckets=len(differences),
        counts=counts,
        differences=differences,
        keys=("order_id", "line"),
        seconds=1.5,
    )


def row(order_id: str, line: str, amount: str | None) -> dict[str, str | None]:
    return {"order_id": order_id, "line": line, "amount": amount}


def key(order_id: str, line: str) -> dict[str, str | None]:
    return {"order_id": order_id, "line": line}


LINES = audited(
    "shop.lines",
    "/lake/lines",
    12,
    950_000,
    Difference("missing", key("17", "2"), row("17", "2", "1"), None),
    Difference("different", key("4711", "1"), row("4711", "1", "12.50"), row("4711", "1", "12.51")),
    Difference("doubled", key("9000", "1"), row("9000", "1", "1"), row("9000", "1", "1")),
)
ORDERS = audited("shop.orders", "lake.orders", 31, 400_000)


def test_the_page_shows_what_is_printed() -> None:
    (shown,) = re.findall(r"^```text\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert str(AuditResult("0-1-4711", (ORDERS, LINES))) == shown.rstrip("\n")


def test_the_verdict_is_of_all_tables_and_of_those_left_out() -> None:
    assert AuditResult("0-1-1", (ORDERS,)).equal
    assert not AuditResult("0-1-1", (ORDERS, LINES)).equal
    incomplete = AuditResult("0-1-1", (ORDERS,), (LeftOut("shop.x", "failed: the disk\nis full"),))
    assert not incomplete.equal
    assert str(incomplete).splitlines() == [
        "NOT COMPLETE at 0-1-1: 1 table, 400,000 rows",
        "  equal      shop.orders = lake.orders version 31: 400,000 rows, hash 6bb18274f27c10ad83ae8d9e7ff1a2c1",
        "  left out   shop.x: failed: the disk\\x0ais full",
    ]


def test_the_json_has_the_fields_of_the_page() -> None:
    told = json.loads(AuditResult("0-1-4711", (ORDERS, LINES), (LeftOut("shop.x", "reading"),)).json())
    page = PAGE.read_text(encoding="utf-8")
    assert not told["equal"]
    for field in (*told, *told["tables"][1], *told["tables"][1]["differences"][0], *told["left_out"][0]):
        assert f"`{field}`" in page
    assert told["tables"][1]["counts"] == {"missing": 1, "extra": 0, "different": 1, "doubled": 1}
    different = told["tables"][1]["differences"][1]
    assert (different["source"]["amount"], different["target"]["amount"]) == ("12.50", "12.51")


def test_values_of_strangers_stay_on_their_line_and_short() -> None:
    table = audited("s.t", "c", None, 1, Difference("extra", {"id": "\x1b[2J" + "x" * 500}, None, {"id": "1"}))
    text = str(AuditResult("", (table,)))
    assert text.startswith("NOT EQUAL at the beginning")
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) < 200


def test_null_is_told_from_text() -> None:
    one = Difference("different", {"id": "1"}, {"id": "1", "a": None}, {"id": "1", "a": "NULL"})
    assert one.columns() == ["a"]
    text = str(AuditResult("0-1-1", (audited("s.t", "c", None, 1, one),)))
    assert "table a=NULL" in text
    assert "copy  a='NULL'" in text
