"""Generator of docs/records.md from the record layouts: `python -m tools.pages.records > docs/records.md`.

With names of records, it prints their fields instead. A test compares the page with the output of this module, so that
the page cannot become outdated.
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

from replica.native.record import Record

_INTRODUCTION = """\
# Records

A record is memory that kernels and Python share (`replica/native/record.py`). Kernels take the address of a record and
read a field at its offset. Python reads the same memory as a structured numpy array.

This page is made from the classes: `python -m tools.pages.records > docs/records.md`. With the name of a record, such
as `python -m tools.pages.records Cell`, the command prints the record's fields, with their offsets and meanings.
"""
_DECLARES = re.compile(r"^class \w+\(Record", re.MULTILINE)


def declared_records() -> list[type[Record]]:
    """List all records of the package, sorted by module."""
    root = Path(__file__).resolve().parents[2]
    for path in sorted(root.glob("replica/**/*.py")):
        if _DECLARES.search(path.read_text(encoding="utf-8")):
            importlib.import_module(".".join(path.relative_to(root).with_suffix("").parts))
    records = (record for record in Record.__subclasses__() if record.__module__.startswith("replica."))
    return sorted(records, key=lambda record: record.__module__)


def page() -> str:
    """Write the whole page."""
    lines = [_INTRODUCTION]
    module = ""
    for record in declared_records():
        if record.__module__ != module:
            lines += [""] if module else []
            module = record.__module__
            lines += [f"`{module.replace('.', '/')}.py`", ""]
        meaning = " ".join((record.__doc__ or "").split()).rstrip(".")
        lines.append(f"* `{record.__name__}`, {record.BYTES} bytes: {meaning}")
    return "\n".join([*lines, ""])


def layout(record: type[Record]) -> str:
    """Write the fields of a record as a table."""
    lines = [f"{record.__name__}, {record.BYTES} bytes: {record.__doc__}", ""]
    for name, field in record.FIELDS.items():
        lines.append(f"{field.offset:5} {name:24} {field.kind or 'int64':16} {field.meaning}")
    return "\n".join([*lines, ""])


def main(names: list[str]) -> None:
    """Print the page, or the layouts of the named records."""
    wanted = [record for record in declared_records() if record.__name__ in names]
    if missing := sorted(set(names) - {record.__name__ for record in wanted}):
        sys.exit(f"There is no record {', '.join(missing)}: docs/records.md lists all records.")
    sys.stdout.write("\n".join(map(layout, wanted)) if names else page())


if __name__ == "__main__":
    main(sys.argv[1:])
