"""docs/mirror.md and docs/mirror-reference.md: their blocks are run, and their tables are those of the code."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

import pytest

from streaming_source.mirroring.__main__ import read_mirror_file
from streaming_source.mirroring.call import mirror
from streaming_source.mirroring.control.control_table import COLUMNS
from streaming_source.mirroring.control.metrics import METRICS
from streaming_source.mirroring.control.status import AUDITED
from streaming_source.mirroring.settings import JOINED_FOR, JOINED_ROWS
from streaming_source.mirroring.writers.native import delta_rows, rewritten_files
from streaming_source.mirroring.writers.native.upkeep import (
    CHECK_EVERY,
    FEW_FILES,
    MOST_BYTES,
    SMALL_BYTES,
    upkeep_properties,
)
from streaming_source.mirroring.writers.target_format import ControlStore, TableWriter, TargetFormat
from streaming_source.schema.target_modes import MEANINGS, OWN_COLUMNS
from streaming_source.transforms.hashes import read_hash_key
from streaming_source.transforms.table_rules import FIELDS, TableRule, table_rules
from tests.fixtures.installation import PROJECT
from tests.fixtures.mariadb import MariaDb

if TYPE_CHECKING:
    from pathlib import Path

    from tests.recipes.workbench import Workbench

PAGE = "\n".join((PROJECT / "docs" / name).read_text(encoding="utf-8") for name in ("mirror.md", "mirror-reference.md"))
BLOCKS = dict(re.findall(r"<!-- mirror: (\w+) -->\n```\w+\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))

_WAIT = """
import time
end = time.monotonic() + 90
while not {what}:
    assert query.isActive, query.exception()
    assert time.monotonic() < end, "it does not come"
    time.sleep(0.2)
"""


def test_the_control_table_is_as_the_page_says() -> None:
    told = [*((name, about) for name, _, about in COLUMNS), *AUDITED]
    assert [line for name, about in told if (line := f"| `{name}` | {about} |") not in PAGE] == []


def test_the_arguments_are_those_of_the_call() -> None:
    section = PAGE.partition("## Arguments")[2].partition("\n\nAll other")[0]
    told = re.findall(r"^\| `(\w+)` \|(?: `(\w+)`)?", section, re.MULTILINE)
    parameters = inspect.signature(mirror).parameters.values()
    assert [name for name, _ in told] == [p.name for p in parameters if p.name not in ("spark", "source")]
    defaults = {p.name: str(p.default) for p in parameters if isinstance(p.default, (str, int))}
    assert {name: value for name, value in told if name in defaults} == defaults


def test_the_numbers_that_join_small_batches_are_those_of_the_code() -> None:
    assert f"as soon as {JOINED_ROWS:,} changes wait" in " ".join(PAGE.split())
    native, spark = (re.sub(r"(\d)(m?s)$", r"\1 \2", JOINED_FOR[writer]) for writer in ("native", "spark"))
    text = f'or {native} after the previous batch (`maxTriggerDelay`; {spark} with `writer="spark"`)'
    assert text in " ".join(PAGE.split())


def test_the_metrics_are_those_of_the_code() -> None:
    section = PAGE[PAGE.index("## Metrics") :]
    told = re.findall(r"^\| `(\w+)` \| (.+) \|$", section[: section.index("## When something dies")], re.MULTILINE)
    assert told == list(METRICS)


def test_the_modes_are_those_of_the_code() -> None:
    for mode, meaning in MEANINGS.items():
        own = ", ".join(f"`{column.name}`" for column in OWN_COLUMNS[mode])
        assert f"| `{mode}` | {meaning} | {own} |" in PAGE
    names: dict[str, Any] = {}
    exec(BLOCKS["modes"], names)  # noqa: S102  (that is what the page says)
    assert [rule.mode for _, rule in table_rules(names["rules"], has_key=False).given] == [*MEANINGS][1:]


def test_the_upkeep_is_that_of_the_code() -> None:
    names: dict[str, Any] = {}
    exec(BLOCKS["kept"], names)  # noqa: S102  (that is what the page says)
    assert upkeep_properties(names["tableProperties"]).keys() == {"delta.checkpointInterval"}
    for told in (
        f"every {CHECK_EVERY} commits",
        f"has {FEW_FILES} files of less than {SMALL_BYTES >> 20} MB",
        f"up to {MOST_BYTES >> 20} MB, become one file",
        f"A target of up to {rewritten_files.SMALL_BYTES >> 20} MB",
        f"are in more than {rewritten_files.MOST_MARKED_BYTES >> 30} GB of its files",
        f"in more than {rewritten_files.MOST_BYTES >> 30} GB of files that have to be copied",
        f"(below {rewritten_files.MARKED_BYTES >> 20} MB",
        f"a `history` of more than {delta_rows.MOST_BYTES >> 20} MB",
    ):
        assert told in PAGE


def test_the_interface_for_formats_is_described_in_the_file_that_the_page_names() -> None:
    section = PAGE.partition("### Another format")[2].partition("\n## ")[0]
    for kind in (TargetFormat, TableWriter, ControlStore):
        assert f"`{kind.__name__}`" in section
        assert f"/{kind.__module__.replace('.', '/')}.py)" in section
        methods = [name for name, each in vars(kind).items() if inspect.isfunction(each) and not name.startswith("_")]
        assert [name for name in methods if not inspect.getdoc(vars(kind)[name])] == []


def test_all_code_of_the_page_is_run_here() -> None:
    blocks = {"iceberg", "parquet", "call", "file", "rules", "kept", "modes", "history", "again", "resync"}
    assert set(BLOCKS) == blocks | {"status", "position", "audit", "report"}
    assert PAGE.count("```python") + PAGE.count("```toml") == len(BLOCKS)


def test_the_rules_of_the_page_are_read(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("k" * 32, encoding="utf-8")
    key_line, _, rules = BLOCKS["rules"].partition("\n")
    file = tmp_path / "mirror.toml"
    file.write_text(
        key_line.replace("/run/secrets/hash-key", str(key)) + "\n" + BLOCKS["file"] + rules, encoding="utf-8"
    )
    given = read_mirror_file(file)
    read = table_rules(given["rules"], has_key=True).of(("shop", "orders"))
    assert read_hash_key(given["hashKeyFile"]).fingerprint
    assert read == TableRule(
        leave_out=("secret",),
        mask={"card": "xxxx"},
        hash=("email",),
        where="country = 'DE'",
        rename={"cust_nm": "customer_name"},
    )
    section = PAGE.partition("## Columns and rows by rule")[2].partition("**Hashes**")[0]
    assert {"mode", *re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)} == set(FIELDS)


@pytest.mark.spark
@pytest.mark.server
@pytest.mark.slow
def test_the_pages_program_and_status(workbench: Workbench, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("replica-secret", encoding="utf-8")
    secret.chmod(0o600)
    with MariaDb("10.11") as primary:
        primary.add_user()
        primary.sql("CREATE DATABASE shop", "CREATE TABLE shop.orders (id INT PRIMARY KEY)")
        primary.sql("INSERT INTO shop.orders VALUES (1), (2)")
        workbench.replaced = {
            '"db1"': f'"{primary.host}:{primary.port}"',
            "/run/secrets/repl": str(secret),
            "/checkpoints": str(tmp_path / "checkpoints"),
            'processingTime = "5 seconds"': "availableNow = true",
        }
        file = tmp_path / "mirror.toml"
        file.write_text(workbench.adapted(BLOCKS["file"]), encoding="utf-8")
        program = "from streaming_source.mirroring.__main__ import main\nresult = main([{!r}])"
        assert workbench.run(program.format(str(file))) == 0
        status = f"{BLOCKS['status']}\nresult = [list(r) for r in status.select('target', 'state', 'rows').collect()]"
        assert workbench.run(status) == [["`lake`.`shop_orders`", "current", 2]]
        assert workbench.run(f"{BLOCKS['position']}\nresult = tables['shop.orders'].count()") == 2
        equal = "result = [result.equal, [table.target_rows for table in result.tables]]"
        assert workbench.run(f"{BLOCKS['audit']}\n{equal}") == [True, [2]]
        shown = "result = [isinstance(status, DataFrame), status.limit(1).count(), status._repr_html_()]"
        code = f"from pyspark.sql import DataFrame\n{BLOCKS['status']}\n{shown}"
        is_one, count, picture = workbench.run(code)
        assert (is_one, count) == (True, 1)
        assert "shop.orders" in picture
        assert "<span>equal</span>" in picture
        workbench.run(BLOCKS["report"])
        report = (workbench.folder / "mirror.html").read_text(encoding="utf-8")
        assert "1 equal" in report
        assert "Rows and changes per second<span>now" in report
        primary.sql("DELETE FROM shop.orders WHERE id = 1")
        workbench.run(
            BLOCKS["call"] + _WAIT.format(what="[r.id for r in spark.table('lake.shop_orders').collect()] == [2]")
        )
        control = "[(r.again, r.state) for r in spark.table('lake.mirror_control').collect()]"
        workbench.run(BLOCKS["again"] + _WAIT.format(what=f"{control} == [('monday', 'current')]"))
        workbench.run("spark.sql('DELETE FROM lake.shop_orders')")
        workbench.run(
            BLOCKS["resync"] + _WAIT.format(what="[r.id for r in spark.table('lake.shop_orders').collect()] == [2]")
        )
        workbench.run("query.stop()")
