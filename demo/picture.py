"""Recorder of the demo as an animated picture, after scripts/setup: `python -m demo.picture docs/demo.svg`.

The module runs the demo in a tmux terminal, captures the screen twice a second, and makes a frame of each change. A
line that several frames share is written to the file once. Readers who prefer reduced motion see only the last frame.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.style import Style

COLUMNS: Final = 116
ROWS: Final = 34
LOOK_S: Final = 0.5
LIMIT_S: Final = 1800.0
FRAMES: Final = 24
"""Maximum number of frames, for a file of some 100 KB, because a README is also read over slow connections."""
FRAME_S: Final = 0.9
LAST_S: Final = 9.0
CELL_W: Final = 8.4
CELL_H: Final = 17.0
MARGIN: Final = 14.0
FONT: Final = 'font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,DejaVu Sans Mono,monospace" font-size="14"'
BACKGROUND: Final = "#1b1f24"
FOREGROUND: Final = "#d7dce2"
COLOURS: Final = {
    0: "#5b6470",
    1: "#ff7b72",
    2: "#7ee787",
    3: "#e3b341",
    4: "#79c0ff",
    5: "#d2a8ff",
    6: "#76e3ea",
    7: "#d7dce2",
}
"""The eight colours of a terminal, in shades that are readable on the background."""


class Piece(NamedTuple):
    """Text of one style within a line. `column`: its first column; `look`: the SVG attributes of its style."""

    column: int
    text: str
    look: str


def pieces(screen: str) -> list[tuple[Piece, ...]]:
    """Return the pieces of text in each line of a screen with ANSI escapes, without blanks."""
    return [tuple(_pieces(line)) for line in Text.from_ansi(screen).split("\n", allow_blank=True)]


def _pieces(line: Text) -> Iterator[Piece]:
    column = 0
    for segment in line.render(Console(width=4 * COLUMNS, color_system="standard"), end=""):
        # Split at two blanks, because SVG shows several as one, and columns must not move.
        for words in re.finditer(r"\S+(?: \S+)*", segment.text):
            yield Piece(column + words.start(), words[0], _look(segment.style))
        column += len(segment.text)


def _look(style: Style | None) -> str:
    if style is None:
        return ""
    look = ""
    if style.color is not None and not style.color.is_default:
        number = style.color.number
        plain = None if number is None else COLOURS.get(number % 8 if number < 16 else number)
        look += f' fill="{plain or style.color.get_truecolor().hex}"'
    if style.bold:
        look += ' font-weight="bold"'
    if style.dim:
        look += ' opacity="0.65"'
    return look


def thinned(screens: Sequence[str]) -> list[str]:
    """Return at most FRAMES screens at even distances, with the first and the last."""
    if len(screens) <= FRAMES:
        return list(screens)
    step = (len(screens) - 1) / (FRAMES - 1)
    return [screens[round(number * step)] for number in range(FRAMES)]


def svg(screens: Sequence[str], title: str) -> str:
    """Return an SVG document that shows the screens one after the other, under `title`."""
    lines: dict[tuple[Piece, ...], int] = {}
    frames: list[str] = []
    for number, screen in enumerate(screens):
        shown = []
        for row, line in enumerate(pieces(screen)):
            if line:
                name = lines.setdefault(line, len(lines))
                shown.append(f'<use href="#l{name}" y="{row * CELL_H:g}"/>')
        frames.append(f'<g class="f" id="f{number}">{"".join(shown)}</g>')
    whole_s = FRAME_S * (len(screens) - 1) + LAST_S
    width = 2 * MARGIN + COLUMNS * CELL_W
    height = 2 * MARGIN + max(len(screen.rstrip().splitlines()) for screen in screens) * CELL_H
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{_motion(len(screens), whole_s)}</style>",
            f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
            "<defs>",
            *(f'<g id="l{name}">{_line(line)}</g>' for line, name in lines.items()),
            "</defs>",
            f'<g transform="translate({MARGIN:g} {MARGIN + CELL_H * 0.75:g})" fill="{FOREGROUND}" {FONT}>',
            *frames,
            "</g>",
            "</svg>",
            "",
        ]
    )


def _line(line: tuple[Piece, ...]) -> str:
    # Each piece has a length, because fonts differ in width and columns must not move.
    return "".join(
        f'<text x="{piece.column * CELL_W:g}" textLength="{len(piece.text) * CELL_W:g}" '
        f'lengthAdjust="spacingAndGlyphs"{piece.look}>{escape(piece.text)}</text>'
        for piece in line
    )


def _motion(frames: int, whole_s: float) -> str:
    rules = [".f{visibility:hidden}", f"#f{frames - 1}{{visibility:visible}}"]
    moving = []
    for number in range(frames):
        begin = 100 * number * FRAME_S / whole_s
        end = 100 * (number + 1) * FRAME_S / whole_s if number < frames - 1 else 100.0
        before = "" if number == 0 else "0%{visibility:hidden}"
        after = "" if number == frames - 1 else f"{end:.2f}%,100%{{visibility:hidden}}"
        rules.append(f"@keyframes k{number}{{{before}{begin:.2f}%{{visibility:visible}}{after}}}")
        moving.append(f"#f{number}{{animation:k{number} {whole_s:g}s step-end infinite}}")
    return "".join([*rules, f"@media (prefers-reduced-motion:no-preference){{{''.join(moving)}}}"])


def recorded(command: str) -> list[str]:
    """Run a command in a terminal; return each screen that differs from the previous one, with ANSI escapes.

    Raises:
        RuntimeError: the command did not end within LIMIT_S, or not with 0.
    """
    tmux = ["tmux", "-L", f"demo-picture-{os.getpid()}", "-f", os.devnull]
    start = f"printf '\\033[1m$ scripts/demo\\033[0m\\n'; {command}; printf 'code %s' $?; sleep 60"
    size = ["-x", str(COLUMNS), "-y", str(ROWS)]
    subprocess.run([*tmux, "new-session", "-d", *size, "-c", str(Path.cwd()), start], check=True)
    screens: list[str] = []
    try:
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            shown = subprocess.run([*tmux, "capture-pane", "-p", "-e"], check=True, capture_output=True, text=True)
            before, ended, code = shown.stdout.rpartition("code ")
            screen = (before if ended else shown.stdout).rstrip()
            if screen and (not screens or screen != screens[-1]):
                screens.append(screen)
            if ended:
                if code.strip() != "0":
                    raise RuntimeError(f"the demo ended with {code.strip()}:\n{before}")
                return screens
            time.sleep(LOOK_S)
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)
    raise RuntimeError(f"the demo did not end within {LIMIT_S:.0f} s")


def without_spinners(screens: Iterable[str]) -> list[str]:
    """Return the screens that differ in more than a spinner's dots."""
    kept: dict[str, str] = {}
    for screen in screens:
        kept[screen.translate({ord(dot): " " for dot in "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"})] = screen
    return list(kept.values())


def main() -> int:
    target = Path(sys.argv[1])
    screens = recorded(f"{sys.executable} -m demo")
    title = "scripts/demo: a shop in MariaDB is mirrored into Delta tables, and every row is compared"
    target.write_text(svg(thinned(without_spinners(screens)), title), encoding="utf-8")
    print(f"{target}: {len(screens)} screens seen, {target.stat().st_size / 1000:.0f} KB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
