"""Generator of docs/records.md from the record layouts: `python -m tools.pages.records > docs/records.md`.

A test compares the page with the output of this module, so that the page cannot become outdated.
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

from replica.native.record import Record

_INTRODUCTION = """\
# Records

The memory that kernels and Python share, and its layout (`replica/native/record.py`). Kernels take the address of a
record and read a field at its offset; Python reads the same memory as a structured array of numpy. This page is made
from the classes; make it again with `python -m tools.pages.records > docs/records.md`.

A field is an int64 where no other type is named. Offsets and sizes are in bytes.
"""
_DECLARES = re.compile(r"^class \w+\(Record", re.MULTILINE)


def declared_records() -> list[type[Record]]:
    """List all records of the package, by the module they stand in."""
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
            module = record.__module__
            lines += [f"## `{module.replace('.', '/')}.py`", ""]
        lines += [f"### {record.__name__}, {record.BYTES} bytes", "", record.__doc__ or "", ""]
        lines += ["| offset | field | meaning |", "| --- | --- | --- |"]
        for name, field in record.FIELDS.items():
            kind = f" ({field.kind})" if field.kind else ""
            lines.append(f"| {field.offset} | `{name}`{kind} | {field.meaning} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(page())
