"""Generator of docs/*.svg from docs/diagrams/*.mmd with Mermaid: `python -m tools.pages.diagrams MERMAID.min.js`.

The module needs Chromium and the file `dist/mermaid.min.js` of the npm package mermaid. The pages contain pictures, so
that readers load no script. Each picture contains the digest of its source, which a test compares.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.fixtures.installation import PROJECT
from tests.kit.tree import files

DOCS: Final = PROJECT / "docs"
_SVG: Final = re.compile(r"<svg.*</svg>", re.DOTALL)
_DIGEST: Final = re.compile(r"<!-- sha256 of the source: (\w+) -->")
_PAGE: Final = """<!doctype html><meta charset="utf-8"><body><script>{library}</script><script>
mermaid.initialize({{startOnLoad: false, theme: "neutral", htmlLabels: false, flowchart: {{htmlLabels: false}},
  fontFamily: "sans-serif"}});
mermaid.render("diagram", {source}).then(made => {{ document.body.innerHTML = made.svg; }});
</script></body>"""


def sources() -> list[Path]:
    """Return the sources of all pictures."""
    return files(DOCS / "diagrams", "*.mmd")


def picture_of(source: Path) -> Path:
    """Return the picture of a source."""
    return DOCS / f"{source.stem}.svg"


def digest(source: Path) -> str:
    """Return the digest of a source."""
    return hashlib.sha256(source.read_bytes()).hexdigest()


def drawn_from(picture: Path) -> str | None:
    """Return the digest of the source that a picture was drawn from."""
    found = _DIGEST.search(picture.read_text(encoding="utf-8"))
    return None if found is None else found[1]


def draw(source: Path, library: str) -> str:
    """Return the picture of a source as SVG."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        text = json.dumps(source.read_text(encoding="utf-8"))
        page.write_text(_PAGE.format(library=library, source=text), encoding="utf-8")
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        command += [f"--user-data-dir={folder}/profile", "--virtual-time-budget=20000", "--dump-dom", page.as_uri()]
        shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = _SVG.search(shown.replace("<br>", "<br/>"))
    if found is None:
        raise SystemExit(f"{source} was not drawn: {shown[-2000:]}")
    return found[0]


def main() -> None:
    library = Path(sys.argv[1]).read_text(encoding="utf-8")
    for source in sources():
        made = draw(source, library)
        picture_of(source).write_text(f"<!-- sha256 of the source: {digest(source)} -->\n{made}\n", encoding="utf-8")
        print(picture_of(source).relative_to(PROJECT))


if __name__ == "__main__":
    main()
