"""One grammar a kind of value: the command line, the environment, both files of options and Spark read the same."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from replica.commands.arguments import gather
from replica.commands.shared_options import Parsed
from replica.daemon.config import DaemonConfig
from replica.errors import ConfigError
from replica.options.config import ReplicaConfig
from replica.options.values import instant, one_of, seconds, size, switch
from replica.schema.patterns import table_patterns
from streaming_source.options.source_options import SourceOptions
from tests.kit.tree import files

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[3]

SIZES = ("64m", " 2 GB ", "1t", "500K", "7", "0", "1.5g", "64MiB", "-1", "", "much", "\u0663m", "9" * 30, "9999999999t")
TIMES = ("500ms", "1.5H", "2d", "10", "0s", "366d", "1e3", "1 week", "", "soon", "\u0663s", "9" * 400)
SWITCHES = ("true", "YES", " on ", "1", "False", "no", "OFF", "0", "y", "n", "perhaps", "", "2")
WORDS = ("fsync", " Receive ", "FSYNC", "never", "")


def _made(make: Callable[[], object]) -> object:
    """What comes out; of an error only that it is one of ours."""
    try:
        return make()
    except ConfigError:
        return ConfigError


def _ways(field: str, text: str, folder: Path) -> dict[str, object]:
    """The value of one option of a replica by each way that leads to it."""
    spelt = field.removesuffix("_s").replace("_", "")
    toml, cnf = folder / "replica.toml", folder / "my.cnf"
    toml.write_text(f'user = "u"\n{field} = """{text}"""\n', encoding="utf-8")
    cnf.write_text(f'[mariadb-replica]\nuser=u\n{field.replace("_", "-")}="{text}"\n', encoding="utf-8")

    def gathered(line: dict[str, object], file: Path | None) -> object:
        return getattr(DaemonConfig.parse(gather(DaemonConfig, line, {}, file).values), field)

    def spark() -> object:
        replica = SourceOptions.parse({"user": "u", "table": "shop.orders", spelt: text}).replica
        return getattr(replica, field)

    return {
        "command line": _made(lambda: gathered({"user": "u", field: text}, None)),
        "TOML file": _made(lambda: gathered({}, toml)),
        "option file": _made(lambda: getattr(ReplicaConfig.parse({"defaults_file": cnf}), field)),
        "Spark": _made(spark),
    }


def _spark(option: str, field: str, text: str) -> object:
    return getattr(SourceOptions.parse({"user": "u", "table": "shop.orders", option: text}), field)


def _parsed(parse: Callable[[str], object], text: str) -> object:
    try:
        return parse(text)
    except ValueError:
        return ConfigError


@pytest.mark.parametrize(
    ("field", "texts", "parse"),
    [
        ("relay_max_bytes", SIZES, size),
        ("connect_timeout_s", TIMES, seconds),
        ("semi_sync", SWITCHES, switch),
        ("ack_policy", WORDS, one_of(DaemonConfig.model_fields["ack_policy"].annotation)),
    ],
)
def test_an_option_of_a_replica_has_one_value_by_every_way(
    tmp_path: Path, field: str, texts: tuple[str, ...], parse: Callable[[str], object]
) -> None:
    for text in texts:
        assert _ways(field, text, tmp_path) == dict.fromkeys(
            ("command line", "TOML file", "option file", "Spark"), _parsed(parse, text)
        ), text


@pytest.mark.parametrize(
    ("option", "field", "texts", "parse"),
    [
        ("maxBytesPerTrigger", "max_bytes_per_trigger", SIZES, size),
        ("daemonTimeout", "daemon_timeout_s", TIMES, seconds),
        ("includeDdl", "include_ddl", SWITCHES, switch),
        ("excludeTables", "exclude_tables", ("a.b", "a.*, b.c", "a", "a.", ".b", "a.b.c", ""), table_patterns),
    ],
)
def test_an_option_of_spark_is_read_as_on_the_command_line(
    option: str, field: str, texts: tuple[str, ...], parse: Callable[[str], object]
) -> None:
    @click.command()
    @click.option("--given", type=Parsed(parse))
    def command(given: object) -> None:
        found.append(given)

    for text in texts:
        found: list[object] = []
        ended = CliRunner().invoke(command, ["--given", text])
        on_the_line = type(ended.exception) if ended.exception else found[0]
        assert _made(lambda text=text: _spark(option, field, text)) == on_the_line == _parsed(parse, text), text


def test_an_error_of_the_command_line_begins_with_the_option() -> None:
    @click.command()
    @click.option("--since", type=Parsed(instant))
    def command(since: int) -> None:
        raise AssertionError(since)

    error = CliRunner().invoke(command, ["--since", "2026-11-21T20:00"]).exception
    assert isinstance(error, ConfigError)
    assert error.message.startswith("--since: '2026-11-21T20:00' has no time zone")


@pytest.mark.parametrize("name", DaemonConfig.model_fields)
def test_a_default_is_written_as_it_is_read(name: str) -> None:
    text = DaemonConfig.default_text(name)
    if text:
        assert getattr(DaemonConfig.parse({"user": "u", name: text}), name) == DaemonConfig.model_fields[name].default


def test_a_default_may_differ_between_the_daemon_and_other_replicas() -> None:
    assert ReplicaConfig.default_text("reconnect_retry_s") == "10m"
    assert DaemonConfig.default_text("reconnect_retry_s") == "365d"
    assert DaemonConfig.default_text("server_id") == ""


def test_no_other_file_reads_a_size_a_duration_or_a_time() -> None:
    """A second grammar would begin with a table of units, or with Python's reader of times."""
    allowed = {
        "replica/options/values.py",
        "streaming_source/sinks/storage.py",  # durations in the grammar of delta-rs, which has refused others before
        "streaming_source/sinks/query_lag.py",  # Spark's time of a progress report, which no user writes
    }
    found = set()
    for folder in ("replica", "streaming_source"):
        for path in files(ROOT / folder, "**/*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                units = isinstance(node, ast.Constant) and isinstance(node.value, str) and "[kmgt]" in node.value
                table = isinstance(node, ast.Dict) and any(
                    isinstance(key, ast.Constant) and key.value in ("ms", "k") for key in node.keys
                )
                reader = isinstance(node, ast.Attribute) and node.attr in ("fromisoformat", "strptime")
                if units or table or reader:
                    found.add(str(path.relative_to(ROOT)))
    assert found == allowed
