"""Catalogs of Iceberg: names, errors that say whose fault it is, and no secret in them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pyiceberg
import pytest
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchTableError,
    ServiceUnavailableError,
)

from replica.errors import ConfigError, InstallationError, StorageError
from streaming_source.sinks.iceberg import catalogs

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def own_catalogs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogs, "_properties", {})
    monkeypatch.setattr(catalogs, "_loaded", {})


def test_a_catalog_has_the_name_that_its_properties_or_pyiceberg_give_it() -> None:
    assert catalogs.register(None) == "default"
    assert catalogs.register("lakehouse") == "lakehouse"
    assert catalogs.register({"type": "sql", "name": "mine", "echo": True}) == "mine"
    assert catalogs._properties["mine"] == {"type": "sql", "echo": "true"}
    assert catalogs.registered() == ["default", "lakehouse", "mine"]


def test_a_name_alone_keeps_the_properties_of_a_registered_catalog() -> None:
    catalogs.register({"type": "sql", "name": "mine"})
    assert catalogs.register("mine") == "mine"
    assert catalogs._properties["mine"] == {"type": "sql"}
    catalogs.register({"type": "rest", "name": "mine"})
    assert catalogs._properties["mine"] == {"type": "rest"}


@pytest.mark.parametrize("given", [{"name": "a.b"}, {"name": "`"}, "", {"type": {"sql": "x"}}])
def test_what_cannot_be_a_catalog_is_refused(given: dict[str, object] | str) -> None:
    with pytest.raises(ConfigError, match="icebergCatalog"):
        catalogs.register(given)


def test_the_name_of_a_table_has_its_catalog_and_its_identifier() -> None:
    assert catalogs.parts_of("`iceberg:mine`.`lake`.`a.b``c`") == ("mine", ("lake", "a.b`c"))
    assert catalogs.is_iceberg("`iceberg:mine`.`lake`.`t`")
    assert not catalogs.is_iceberg("`iceberg`.`t`")


@pytest.mark.parametrize("version", ["0.11.3", "0.13.0", "1.0.0"])
def test_another_pyiceberg_is_refused(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(pyiceberg, "__version__", version)
    with pytest.raises(InstallationError, match=rf"does not work with PyIceberg {version}.*pip install"):
        catalogs.check_pyiceberg()


def test_a_missing_pyiceberg_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    with pytest.raises(InstallationError, match="needs PyIceberg, which cannot be imported"):
        catalogs.check_pyiceberg()


def test_errors_say_whose_fault_it_is_and_hide_secrets() -> None:
    catalogs.register({"type": "rest", "uri": "https://me:pass-word@host", "token": "hidden-token"})
    for raised, kind, words in (
        (ForbiddenError("hidden-token may not"), ConfigError, "refuses the request: … may not"),
        (NoSuchTableError("lake.t"), ConfigError, "cannot be used: lake.t"),
        (ServiceUnavailableError("no answer of https://me:pass-word@host"), StorageError, "https://…@host"),
        (OSError("disk"), StorageError, "does not answer"),
        (CommitStateUnknownException("500 hidden-token"), StorageError, "did not confirm a commit of lake.t: 500 …"),
        (CommitFailedException("made meanwhile"), StorageError, "did not confirm a commit of lake.t: made meanwhile"),
    ):
        with pytest.raises(kind) as found, catalogs.catalog_errors("default", "lake.t"):
            raise raised
        assert words in str(found.value)
        assert "hidden-token" not in str(found.value)
        assert "pass-word" not in str(found.value)


def test_a_commit_that_is_retried_keeps_its_error() -> None:
    for error in (CommitFailedException("conflict"), CommitStateUnknownException("504")):
        with pytest.raises(type(error)), catalogs.catalog_errors("default", "lake.t", retried=True):
            raise error


def test_a_catalog_that_is_away_or_unknown_is_one_error(tmp_path: Path) -> None:
    catalogs.register({"type": "sql", "uri": f"sqlite:///{tmp_path}/nowhere/c.db", "warehouse": str(tmp_path)})
    with pytest.raises(StorageError, match="does not answer"):
        catalogs.catalog_of("default")
    catalogs.register({"type": "rest", "uri": "http://127.0.0.1:9", "name": "away"})
    with pytest.raises(StorageError, match="the Iceberg catalog away or its storage does not answer"):
        catalogs.catalog_of("away")
    catalogs.register({"type": "nothing", "name": "odd"})
    with pytest.raises(ConfigError, match="the Iceberg catalog odd cannot be used"):
        catalogs.catalog_of("odd")


@pytest.mark.parametrize("name", ["orders", "", "lake..orders", "lake. "])
def test_a_name_without_a_namespace_is_refused(tmp_path: Path, name: str) -> None:
    catalog = catalogs.register({"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}"})
    for ask in (catalogs.table_exists, catalogs.load_table):
        with pytest.raises(ConfigError, match="has no namespace and table"):
            ask(catalogs.name_in(catalog, name))
    assert not catalogs.table_exists(catalogs.name_in(catalog, "lake.orders"))
    assert catalogs.name_in(catalog, "`la``ke`.`or.ders`") == f"`iceberg:{catalog}`.`la``ke`.`or.ders`"
