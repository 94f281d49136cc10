"""Generator of the table of `mirror()`'s arguments in docs/mirror-reference.md: `python -m tools.pages.arguments`.

A test compares the page with the generated table.
"""

from __future__ import annotations

from typing import Final

from streaming_source.mirroring.arguments import ARGUMENTS
from tests.fixtures.installation import PROJECT

PAGE: Final = PROJECT / "docs" / "mirror-reference.md"
_HEAD: Final = "| --- | --- | --- |\n"
_END: Final = "\n\n"


def with_arguments(page: str) -> str:
    """Return the page with its first table made anew."""
    before, head, rest = page.partition(_HEAD)
    rows = (
        f"| `{one.name}` | {one.unset if one.default is None else f'`{one.default}`'} | {one.meaning} |"
        for one in ARGUMENTS
    )
    return before + head + "\n".join(rows) + _END + rest.partition(_END)[2]


if __name__ == "__main__":
    PAGE.write_text(with_arguments(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
