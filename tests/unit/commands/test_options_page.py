"""docs/daemon-reference.md and the example file say what the table of options says."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from replica.commands.arguments import Gathered, option_flag
from replica.commands.options_page import EXAMPLE, PAGE, effective, example, options_table
from replica.daemon.config import DaemonConfig
from replica.options.config import ENVIRONMENT_PREFIX, read_options_file

PROJECT = Path(__file__).resolve().parents[3]
SECRET = "hunter2-nobody-knows"
RUN = "run: python -m replica.commands.options_page"


def test_the_page_has_the_table() -> None:
    assert options_table() in (PROJECT / PAGE).read_text(encoding="utf-8"), RUN


def test_the_example_is_current() -> None:
    assert (PROJECT / EXAMPLE).read_text(encoding="utf-8") == example(), RUN


def test_the_table_has_a_line_for_every_option() -> None:
    lines = options_table().splitlines()
    assert len(lines) == 2 + len(DaemonConfig.model_fields)
    assert "| `retain_s` | `1d` | Relay files are kept this long after their last transaction |" in options_table()


def test_the_page_says_how_an_option_is_spelt_elsewhere() -> None:
    page = (PROJECT / PAGE).read_text(encoding="utf-8")
    for spelling in ("retain_s", option_flag("retain_s"), f"{ENVIRONMENT_PREFIX}RETAIN_S"):
        assert f"`{spelling}`" in page


def test_the_example_is_a_configuration_that_differs_from_the_defaults_in_the_account_only() -> None:
    made = DaemonConfig.from_file(PROJECT / EXAMPLE, {})
    assert made.model_fields_set == {"user"}


@pytest.mark.parametrize("name", DaemonConfig.model_fields)
def test_each_line_of_the_example_is_taken_without_its_hash(name: str, tmp_path: Path) -> None:
    (line,) = [line for line in example().splitlines() if line.lstrip("# ").startswith(f"{name} = ")]
    needs = {
        "tls_cert": {"tls_key": "/other.pem"},
        "tls_key": {"tls_cert": "/other.pem"},
        "http_token_file": {"http_listen": "127.0.0.1:9306"},
        "http_tls_cert": {"http_listen": "127.0.0.1:9306", "http_tls_key": "/other.pem"},
        "http_tls_key": {"http_listen": "127.0.0.1:9306", "http_tls_cert": "/other.pem"},
    }
    file, client = tmp_path / "one.toml", tmp_path / "my.cnf"
    client.write_text("[client]\n")
    file.write_text(line.removeprefix("# ").replace("/etc/mariadb-replica/defaults_file", str(client)) + "\n")
    given = {"user": "u", **needs.get(name, {}), **read_options_file(file)}
    made = DaemonConfig.parse(given)
    default = DaemonConfig.model_fields[name].get_default()
    if default is not None and name not in ("server_id", "user", "report_host"):
        assert getattr(made, name) == default


def test_the_effective_configuration_masks_secrets_and_names_sources() -> None:
    config = DaemonConfig.parse(
        {"user": "u", "password": SECRET, "host": "db1,[::1]:3307", "http_listen": "[::]:9306", "retain_s": "90s"}
    )
    rows = effective(config, Gathered({}, {"password": "MARIADB_REPLICA_PASSWORD", "host": "--host"}))
    shown = {row.name: (row.value, row.source) for row in rows}
    assert SECRET not in str(rows)
    assert shown["password"] == ("********", "MARIADB_REPLICA_PASSWORD")
    assert shown["host"] == ("db1,[::1]:3307", "--host")
    assert shown["http_listen"][0] == "[::]:9306"
    assert shown["retain_s"] == ("90s", "default")
    assert shown["relay_max_bytes"] == ("4g", "default")
    assert shown["server_id"] == ("drawn at the first start", "default")
    assert shown["semi_sync"] == ("false", "default")
    assert set(shown) == set(DaemonConfig.model_fields)


def test_what_stands_in_mariadbs_option_file_is_named_too(tmp_path: Path) -> None:
    client = tmp_path / "my.cnf"
    client.write_text(f"[client]\nuser=filed\npassword={SECRET}\n")
    config = DaemonConfig.parse({"defaults_file": str(client)})
    shown = {row.name: row.source for row in effective(config, Gathered({}, {"defaults_file": "--defaults-file"}))}
    assert (shown["user"], shown["defaults_file"], shown["port"]) == (str(client), "--defaults-file", "default")


def test_the_example_is_plain_toml() -> None:
    assert tomllib.loads(example()) == {"user": "repl"}
