"""The metadata of a wheel that depends on where it is built: the README as an index shows it, and addresses.

An index has no files beside the README: a relative link would lead nowhere. With SOURCE_URL (the address that files
of the tree are shown under, https://host/owner/name/blob/main) links become absolute; without it, names of files.
A picture is at the same address with raw in place of blob; without an address it is left out.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|#)([^)\s]+)\)")
PICTURE = re.compile(r"^!\[([^\]]+)\]\((?!https?:)([^)\s]+)\)\n\n?", re.MULTILINE)


def index_readme(text: str, source_url: str = "") -> str:
    """Return the README without a link that leads nowhere on an index."""

    def replaced(link: re.Match[str]) -> str:
        shown, target = link[1], link[2]
        if source_url:
            return f"[{shown}]({source_url.rstrip('/')}/{target})"
        file = target.partition("#")[0]
        return f"`{file}`" if shown.strip("`") == file else f"{shown} (`{file}`)"

    raw = source_url.rstrip("/").replace("/blob/", "/raw/")
    return LINK.sub(replaced, PICTURE.sub(rf"![\1]({raw}/\2)\n\n" if source_url else "", text))


class IndexMetadata(MetadataHookInterface):
    """Give the wheel its README, and its addresses where they are known."""

    def update(self, metadata: dict[str, Any]) -> None:
        source_url = os.environ.get("SOURCE_URL", "")
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": index_readme(text, source_url)}
        if source_url:
            metadata["urls"] = {
                "Source": source_url,
                "Documentation": f"{source_url.rstrip('/')}/docs",
                "Changelog": f"{source_url.rstrip('/')}/CHANGELOG.md",
            }
