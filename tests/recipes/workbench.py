"""docs/recipes.md as tests run it: the page's blocks of code, and a Spark driver of its own to run them in.

A block is named by a comment in front of it, `<!-- recipe: delta -->`. What a page can only make up (hosts, folders) is
replaced by what the test has, and a text that is not in the page any more is an error.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.fixtures.installation import PROJECT
from tests.fixtures.spark_home import spark_python

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGE = PROJECT / "docs" / "recipes.md"
_BLOCK = re.compile(
    r"(?:<!-- recipe: (?P<name>[\w-]+) -->\n)?```(?P<language>\w+)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE
)


def blocks() -> dict[str, str]:
    """The page's blocks by name; a block of Python or YAML without a name would be code that nothing runs."""
    found = {}
    for block in _BLOCK.finditer(PAGE.read_text(encoding="utf-8")):
        name = block["name"]
        assert name or block["language"] not in {"python", "yaml", "sql"}, f"a block without a name:\n{block['code']}"
        if name:
            assert name not in found, f"two blocks are called {name}"
            found[name] = block["code"]
    return found


class Workbench:
    """A Spark driver in a process of its own: `run` code in it, one after the other, in one namespace."""

    def __init__(self, settings: Mapping[str, str], folder: Path, replaced: Mapping[str, str]) -> None:
        self.settings = settings
        self.folder = folder
        self.replaced = dict(replaced)
        self.blocks = blocks()

    def __enter__(self) -> Self:
        # Queries without relayDir find the log of an earlier run under the temp folder: here there is no earlier run.
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        ours, theirs = socket.socketpair()
        with theirs:
            driver = [sys.executable, str(Path(__file__).with_name("driver.py"))]
            self._driver = subprocess.Popen(
                [*self._where(), *driver, json.dumps(self.settings), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=self.folder,
                env=self._environment() | {"TMPDIR": str(temporary)},
                stdin=subprocess.DEVNULL,
            )
        self._stream = ours.makefile("rw", encoding="utf-8")
        ours.close()
        self._answer()
        return self

    def _where(self) -> list[str]:
        """Words that run the driver in another place, before its command."""
        return []

    def _environment(self) -> dict[str, str]:
        return environment()

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        try:
            self._driver.wait(60)
        except subprocess.TimeoutExpired:
            self._driver.kill()
            self._driver.wait()

    def code(self, name: str) -> str:
        """A block of the page, with this test's hosts and folders in it."""
        return self.adapted(self.blocks[name])

    def adapted(self, code: str) -> str:
        for written, real in self.replaced.items():
            code = code.replace(written, real)
        return code

    def recipe(self, *names: str, then: str = "") -> Any:
        """Run blocks of the page and, behind them, more code; the `result` it leaves."""
        return self.run("\n".join([*map(self.blocks.__getitem__, names), then]))

    def run(self, code: str) -> Any:
        """Run code that names hosts and folders as the page does; the `result` it leaves."""
        print(json.dumps(self.adapted(code)), file=self._stream, flush=True)
        return self._answer()

    def _answer(self) -> Any:
        line = self._stream.readline()
        assert line, f"the Spark driver has ended with {self._driver.wait(60)}"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["result"]


def environment() -> dict[str, str]:
    """Spark's Python processes are new interpreters: they need ours, and the tree under test."""
    path = os.pathsep.join([str(PROJECT), os.environ.get("PYTHONPATH", "")])
    return os.environ | {"PYSPARK_PYTHON": spark_python(), "PYTHONPATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}
