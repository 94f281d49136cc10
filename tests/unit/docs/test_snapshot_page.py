"""docs/snapshot.md and its reference: they show what `check --initial` prints, and have the figures of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from replica.commands.check.initial import LINES, initial_report
from replica.commands.check.report import lines
from replica.options.values import CommitTime
from replica.snapshot.check.facts import Cascade
from replica.snapshot.check.table_verdict import BYTES_A_SECOND, ROWS_A_SECOND
from replica.snapshot.check.verdict import judge
from replica.snapshot.pace import CHUNK_BYTES, CHUNK_ROWS, CHUNK_S, MOST_HISTORY, MOST_THREADS_RUNNING, Pace
from replica.snapshot.watermark.primary import TEN_SECONDS
from streaming_source.options.source_options import OPTIONS, SourceOptions
from streaming_source.rows.read_plan import FIRST_ORDINAL
from tests.unit.snapshot.facts import column, index, listed, told

DOCS = Path(__file__).parents[3] / "docs"
TEXT = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("snapshot.md", "snapshot-reference.md"))


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


def test_the_picture_is_what_the_command_prints() -> None:
    id_, megabyte = column("id", nullable=False), 1 << 20
    lines_key = ("order_id", "line")
    facts = told(
        listed("audit", column("at", "datetime"), key=()),
        listed("customers", id_, rows=50_000, octets=2_638_000),
        listed(
            "order_lines",
            *(column(name, nullable=False) for name in lines_key),
            indexes=(index("PRIMARY", *lines_key),),
            key=lines_key,
            rows=950_000,
            octets=61 * megabyte,
            cascades=(Cascade("of_order", ("shop", "orders"), ("ON DELETE CASCADE",)),),
        ),
        listed("orders", id_, rows=400_000, octets=int(78.62 * megabyte)),
        listed("sessions", id_, engine="MyISAM"),
    )
    printed = "\n".join(lines([initial_report("db1:3306", judge(facts))], encoding="utf-8"))
    picture, *_ = blocks("text")
    plain = re.sub(r"\x1b\[\d+m", "", printed)
    assert plain.partition("\n\n")[0] == picture.rstrip("\n")


def test_the_queries_of_the_page_are_what_it_says() -> None:
    stream, batch, past = (dict(re.findall(r'\.option\("(\w+)", "([^"]*)"\)', query)) for query in blocks("python"))
    for given in (stream, batch, past):
        given["password"] = given.pop("passwordFile")
    assert SourceOptions.parse(stream).initial
    assert SourceOptions.parse(batch).content == "tables"
    assert isinstance(SourceOptions.parse(past).ending_position, CommitTime)


@pytest.mark.parametrize(
    "said",
    [
        f"`snapshotConnections` ({Pace().connections})",
        f"`snapshotChunkRows` ({CHUNK_ROWS:,})".replace(",", " "),
        f"{CHUNK_BYTES >> 20} MB",
        f"more than {MOST_THREADS_RUNNING} statements",
        f"{FIRST_ORDINAL:,} and more".replace(",", " "),
        f"{int(ROWS_A_SECOND):,} rows and {BYTES_A_SECOND / (1 << 20):.0f} MB a second".replace(",", " "),
    ],
)
def test_figures_are_those_of_the_code(said: str) -> None:
    assert said in " ".join(TEXT.split())


def test_figures_that_the_page_has_in_words() -> None:
    assert (TEN_SECONDS, CHUNK_S, MOST_HISTORY, LINES) == (10.0, 0.5, 1_000_000, 40)
    for words in ("ten seconds", "half a second", "a million transactions", "forty tables"):
        assert words in " ".join(TEXT.split())


def test_options_that_the_page_names_are_options() -> None:
    known = {option.name for option in OPTIONS}
    named = set(re.findall(r"`((?:snapshot|max|min|relay|starting|exclude|on)[A-Z]\w+)(?:=\w+)?`", TEXT))
    assert named <= known | {"snapshotProgress"}
    assert {"snapshotConnections", "snapshotChunkRows", "snapshotRowsPerSecond", "snapshotHost"} <= named
