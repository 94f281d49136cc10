"""The hooks of the site's builder (mkdocs.yml): pages that lie beside docs/ join it, and links fit where they then are.

In: the pages as they are read in the tree. Out: the same pages in one folder. A link to a page leads to that page, one
to a section keeps its section; a picture in docs/ is shown; a link to a file of code, which the site does not have,
becomes the name of that file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

PROJECT = Path(__file__).resolve().parents[1]
BESIDE = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])+)\]\((?!https?:|#)([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that lie beside docs/."""
    for name in BESIDE:
        files.append(File.generated(config, name, content=(PROJECT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Mend the links of one page."""
    return mended(markdown, PROJECT if page.file.src_path in BESIDE else PROJECT / "docs")


def mended(markdown: str, folder: Path) -> str:
    """Return the text of a page of this folder with links as they are in the site."""

    def replaced(link: re.Match[str]) -> str:
        shown, target, section = link[1], (folder / link[2]).resolve(), link[3] or ""
        if target.suffix == ".md" and target.parent in (PROJECT, PROJECT / "docs"):
            return f"[{shown}]({target.name}{section})"
        if target.suffix == ".svg" and target.parent == PROJECT / "docs":
            return f"[{shown}]({target.name})"
        name = target.relative_to(PROJECT).as_posix()
        return shown if name.endswith(shown.strip("`")) else f"{shown} (`{name}`)"

    return LINK.sub(replaced, markdown)
