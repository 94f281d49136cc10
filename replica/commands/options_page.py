"""Table of options for people: in docs/daemon-reference.md, in the example file, and as the values of one call.

In: the configuration classes. Out: text. A test checks the page and the example against the classes. After a change,
`python -m replica.commands.options_page` writes both.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from replica.daemon.config import DaemonConfig
from replica.options.values import written

if TYPE_CHECKING:
    from replica.commands.arguments import Gathered

BEGIN = "<!-- options: made by python -m replica.commands.options_page -->"
END = "<!-- end of options -->"
PAGE = Path("docs/daemon-reference.md")
EXAMPLE = Path("docs/mariadb-replica.example.toml")

_EXAMPLE_HEAD = """\
# Every option of mariadb-replica, with its default. Remove the # of what you change.
# The command line (--relay-dir) and the environment (MARIADB_REPLICA_RELAY_DIR) win over this file.
# Sizes: 500k, 64m, 2g (powers of 1024). Times: 500ms, 10s, 5m, 1h, 2d.

"""
_DRAWN = ("server_id",)
_SAMPLES = {
    "unix_socket": "/run/mysqld/mysqld.sock",
    "user": "repl",
    "password": "better-in-a-file",
    "tls": "verify-identity",
    "server_id": "4711",
    "report_host": "replica1",
    "relay_dir": "/var/lib/mariadb-replica",
    "http_listen": "127.0.0.1:9306",
    "cluster": "shop",
}
"""Sample values of options without a default. The options that are not listed here are files."""


class Row(NamedTuple):
    """One option of a call: its value in the notation of a file, and its source."""

    name: str
    value: str
    source: str


def effective(config: DaemonConfig, given: Gathered) -> list[Row]:
    """Return every option with its value; secrets are masked."""
    rows = []
    for name in type(config).model_fields:
        # An option that is set, but not given to this program, comes from MariaDB's option file.
        rest = str(config.defaults_file) if name in config.model_fields_set and config.defaults_file else "default"
        source = given.sources.get(name, rest)
        drawn = name in _DRAWN and source == "default"
        value = "drawn at the first start" if drawn else written(name, getattr(config, name))
        rows.append(Row(name, value, source))
    return rows


def options_table() -> str:
    """Return the table of options in Markdown."""
    lines = ["| option | default | meaning |", "| --- | --- | --- |"]
    for name, text in DaemonConfig.help().items():
        text_of_default = DaemonConfig.default_text(name)
        shown = f"`{text_of_default}`" if text_of_default else ""
        lines.append(f"| `{name}` | {shown} | {text} |")
    return "\n".join(lines)


def example() -> str:
    """Return a configuration file with every option. All but the account are comments."""
    blocks = []
    for name, text in DaemonConfig.help().items():
        needed = DaemonConfig.model_fields[name].is_required()
        blocks.append(f"# {text}.\n{'' if needed else '# '}{name} = {_toml(name)}\n")
    return _EXAMPLE_HEAD + "\n".join(blocks)


def _toml(name: str) -> str:
    text = DaemonConfig.default_text(name) or _SAMPLES.get(name, f"/etc/mariadb-replica/{name}")
    return text if text in ("true", "false") or text.isdecimal() else f'"{text}"'


def write() -> None:
    """Write both files, in the current folder."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{options_table()}\n\n{END}{after}", encoding="utf-8")
    EXAMPLE.write_text(example(), encoding="utf-8")


if __name__ == "__main__":
    write()
