"""Generator of docs/api.md from the docstrings of all importable names: `python -m tools.pages.api > docs/api.md`.

In: the public names of both packages and their docstrings. Out: the page. One test compares docs/api.md with the output
of this module, so that the page cannot become outdated. Another test runs its examples.
"""

from __future__ import annotations

import inspect
import re
import sys
from importlib import import_module
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from replica.readers.arrow import FIELDS
from streaming_source.mirroring.arguments import ARGUMENTS

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE, ERRORS = map(import_module, ("pyspark_mariadb_binlog", "pyspark_mariadb_binlog.errors"))
MEMBERS: Final = {
    "AuditResult": ("json",),
    "Difference": ("columns",),
    "EmbeddedReplica": ("start", "close", "head", "wait_for", "wait_beyond", "server_position", "earliest_position"),
    "GtidPosition": ("parse",),
    "ReplicaConfig": ("parse", "from_file"),
}
"""Public methods of public classes. Classes that are not listed have none."""
ELSEWHERE: Final = {
    "mirror": (
        {one.name for one in ARGUMENTS},
        "All other arguments: [mirror-reference.md](mirror-reference.md#arguments).",
    )
}
"""Functions with arguments that another page describes: these arguments, and the link to the page."""
WIDTH: Final = 120
_SECTIONS: Final = ("Args", "Attributes", "Returns", "Raises")
_ENTRY: Final = re.compile(r"(\w+): (.*)")

_INTRODUCTION: Final = """\
# Python API

The data source in Spark needs no import: see [spark.md](spark.md). This page is made from docstrings:
`python -m tools.pages.api > docs/api.md`.

**Public**: the names on this page with their methods, arguments and fields, the options and columns of the data
source, the commands with their exit codes, and the files that docs/ describes. They do not change in a patch release.
The CHANGELOG lists each change.

**Private**: everything else, such as the packages `replica` and `streaming_source`, other members of public classes,
and the wording of errors. It may change with any commit.

The package has type hints (`py.typed`). A name is loaded when it is first used. If a package that it needs is missing,
an InstallationError names the package and the interpreter.
"""

_EXAMPLES: Final = """\
## Examples

Changes of a table from binlog files, without a server and without Spark:

<!-- example: files -->
```python
import pyarrow as pa

from pyspark_mariadb_binlog import decode_files

changes = pa.Table.from_batches(decode_files(["/backup/bin.000041", "/backup/bin.000042.gz"], "shop.orders"))
print(changes.group_by("op").aggregate([("ordinal", "count")]))
```

A replica in your own process, and a reader of its relay log. Store `position` once your own output is durable. The next
reader continues after it, also in another process.

<!-- example: embedded -->
```python
from pathlib import Path

from pyspark_mariadb_binlog import EmbeddedReplica, GtidPosition, ReplicaConfig, read_relay_log

config = ReplicaConfig.parse({"host": "db1", "user": "repl", "password_file": "/run/secrets/repl"})
relay = Path("/data/relay")
done = GtidPosition.parse("0-1-1")

with EmbeddedReplica(config, relay) as running:
    running.start(done)
    running.wait_for(running.server_position(), timeout_s=60)
    changes = read_relay_log(relay, "shop.orders", after=done)
    for batch in changes:
        print(batch.num_rows, "changes up to", batch["gtid"][-1])
    done = changes.position
```

Every error is a `ReplicaError`:

<!-- example: errors -->
```python
from pyspark_mariadb_binlog import read_relay_log
from pyspark_mariadb_binlog.errors import DataLossError, ReplicaError

try:
    batches = list(read_relay_log("/data/relay", "shop.orders", after="0-1-1"))
except DataLossError as error:
    print("load the table again:", error.message)
except ReplicaError as error:
    print(error.message, error.hint, error.exit_code)
```

[recipes.md](recipes.md) has examples for Spark.
"""

_BATCHES: Final = """\
## The RecordBatches

`decode_files` and `read_relay_log` return RecordBatches of one table in the order of the log. A batch has at most
16 384 row changes or about 2 MB. It owns its memory: you may keep it, and use it in other threads. `before` and `after`
have the columns that the table had at that place of the log, so the schema changes after an ALTER TABLE.
[types.md](types.md) lists the types of columns.

| column | type | null | meaning |
| --- | --- | --- | --- |
"""


class Docstring(NamedTuple):
    """Hold a docstring in parts: the prose, and by section its entries (name, text)."""

    prose: list[str]
    sections: dict[str, list[tuple[str, str]]]


def docstring(told: object) -> Docstring:
    """Take a docstring apart."""
    prose: list[str] = []
    sections: dict[str, list[tuple[str, str]]] = {}
    entries: list[tuple[str, str]] | None = None
    for line in (inspect.getdoc(told) or "").splitlines():
        if line.removesuffix(":") in _SECTIONS:
            entries = sections[line.removesuffix(":")] = []
        elif entries is None:
            prose.append(line)
        elif line.startswith("     ") and entries:
            name, text = entries.pop()
            entries.append((name, f"{text} {line.strip()}"))
        elif line.strip():
            found = _ENTRY.fullmatch(line.strip()) if "Returns" not in list(sections)[-1:] else None
            entries.append((found[1], found[2]) if found else ("", line.strip()))
    if "Returns" in sections:
        sections["Returns"] = [("", " ".join(text for _, text in sections["Returns"]))]
    return Docstring(prose, sections)


def public(module: Any) -> dict[str, Any]:
    """List what may be imported from a module, by name."""
    return {name: getattr(module, name) for name in sorted(module.__all__)}


def page() -> str:
    """Make the whole page."""
    return "\n".join(_lines()).rstrip() + "\n"


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    yield f"## `{PACKAGE.__name__}`\n"
    for name, told in public(PACKAGE).items():
        yield from _entry(name, told, "###")
        for member in MEMBERS.get(name, ()):
            yield from _entry(f"{name}.{member}", getattr(told, member), "####")
    yield _BATCHES + "\n".join(
        f"| `{field.name}` | {field.kind or 'struct of the table'} | {'yes' if field.nullable else 'no'} "
        f"| {field.meaning} |"
        for field in FIELDS
    )
    yield f"\n## `{ERRORS.__name__}`\n"
    yield (
        "Each error has `message`, `hint` (what to do) and `exit_code` (of a command that it ends). `str()` is message "
        "and hint.\n"
    )
    yield "| error | is a | exit code | meaning |"
    yield "| --- | --- | --- | --- |"
    for name, error in public(ERRORS).items():
        text = " ".join((inspect.getdoc(error) or "").split())
        yield f"| `{name}` | {error.__base__.__name__} | {error.exit_code} | {text} |"
    yield ""
    yield _EXAMPLES


def _entry(name: str, told: Any, level: str) -> Iterator[str]:
    """Write one name: its call, its prose, its sections."""
    found = docstring(told)
    yield f"{level} `{name}`\n"
    if isinstance(told, FunctionType | MethodType) or "Args" in found.sections:
        yield f"```python\n{_call(name, told)}\n```\n"
    yield "\n".join(found.prose).strip() + "\n"
    for title, entries in found.sections.items():
        if title == "Returns":
            yield f"*Returns*: {entries[0][1]}\n"
            continue
        others, link = ELSEWHERE.get(name, (set(), "")) if title == "Args" else (set(), "")
        yield f"*{title}*\n"
        yield "\n".join(f"* `{entry}`: {text}" for entry, text in entries if entry not in others) + "\n"
        if link:
            yield f"{link}\n"


def _call(name: str, told: Any) -> str:
    """Write how it is called, in one line or an argument a line."""
    signature = inspect.signature(told)
    arguments, keyword_only = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            arguments.append("*")
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        if parameter.name != "self":
            stars = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
            arguments.append(f"{stars}{parameter.name}: {parameter.annotation}{default}")
    called, returned = name.rpartition(".")[2], "" if inspect.isclass(told) else f" -> {signature.return_annotation}"
    text = f"{called}({', '.join(arguments)}){returned}"
    if len(text) <= WIDTH:
        return text
    return "\n".join([f"{called}(", *(f"    {argument}," for argument in arguments), f"){returned}"])


if __name__ == "__main__":
    sys.stdout.write(page())
