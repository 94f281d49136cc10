"""docs/tutorial.md, block after block: SQL on a server of its own, commands, the program; what the page says comes out.

Slow: it starts Spark twice.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.installation import PROJECT
from tests.fixtures.spark_home import spark_python

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb

PAGE = PROJECT / "docs" / "tutorial.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_the_page_has_no_block_that_the_test_does_not_know() -> None:
    languages = [language for language, _ in BLOCKS]
    assert set(languages) == {"sql", "sh", "python", "text"}
    assert languages.count("python") == 1
    assert all(languages[at - 1] == "sh" for at, language in enumerate(languages) if language == "text")


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_every_block_does_what_the_page_says(make_server: Callable[..., MariaDb], tmp_path: Path) -> None:
    primary = make_server("11.8", "--binlog-row-metadata=FULL")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "mariadb-replica").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m replica "$@"\n')
    (programs / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(PROJECT),
        "PYSPARK_PYTHON": spark_python(),
        "HOME": str(tmp_path),
        "NO_COLOR": "1",
    }
    said, exported = "", ""
    for language, block in BLOCKS:
        text = block.replace("3306", str(primary.port)).replace("/tmp/tutorial", str(tmp_path / "tutorial"))  # noqa: S108
        if language == "sql":
            primary.sql(*(line for line in text.splitlines() if line))
        elif language == "python":
            (tmp_path / "orders.py").write_text(text)
        elif language == "sh":
            exported += "".join(f"{line}\n" for line in text.splitlines() if line.startswith("export "))
            done = subprocess.run(
                ["bash", "-euc", exported + text],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=580,
                check=False,
            )
            said = done.stdout
            assert done.returncode == 0, f"{text}\n{said}\n{done.stderr}"
        else:
            assert text in said, f"the page says\n{text}\nand it was\n{said}"
