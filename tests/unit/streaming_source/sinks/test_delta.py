"""Folder of a Delta table, on a disk or in S3: by its name, by Spark's own catalog, by DESCRIBE DETAIL."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.errors import AnalysisException

from streaming_source.sinks.delta import folder_of, known_folder
from tests.kit.connect_session import ConnectSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(location: str, catalog: str | None = None, detail: str = "") -> SparkSession:
    """A session in whose catalog all tables lie in one place; `""`: there is none."""

    def metadata(_: object) -> Any:
        if not location:
            raise AnalysisException("TABLE_OR_VIEW_NOT_FOUND")
        return SimpleNamespace(location=lambda: location)

    named = SimpleNamespace(catalog=lambda: SimpleNamespace(isEmpty=lambda: catalog is None, get=lambda: catalog))
    state = SimpleNamespace(
        sqlParser=lambda: SimpleNamespace(parseTableIdentifier=lambda _: named),
        catalog=lambda: SimpleNamespace(getTableMetadata=metadata),
        newHadoopConf=lambda: SimpleNamespace(getPassword=lambda _: None),
    )
    rows = SimpleNamespace(collect=lambda: [(detail,)])
    described = SimpleNamespace(select=lambda _: rows)
    java = SimpleNamespace(sessionState=lambda: state)
    return cast("SparkSession", SimpleNamespace(_jsparkSession=java, sql=lambda _: described))


@pytest.mark.parametrize(
    ("location", "catalog", "folder"),
    [
        ("file:/lake/a%20b/t", None, "/lake/a b/t"),
        ("file:///lake/t", "spark_catalog", "/lake/t"),
        ("/lake/t", None, "/lake/t"),
        ("s3a://bucket/lake/t/", None, "s3://bucket/lake/t"),
        ("hdfs://host/t", None, None),
        ("file:/lake/t", "another", None),
        ("", None, None),
    ],
)
def test_the_catalog_says_it(location: str, catalog: str | None, folder: str | None) -> None:
    assert known_folder(session(location, catalog), "lake.t") == folder


@pytest.mark.parametrize(("name", "folder"), [("`delta`.`/lake/t`", "/lake/t"), ("`delta`.`s3a://b/t`", "s3://b/t")])
def test_a_path_says_it_itself(name: str, folder: str | None) -> None:
    assert known_folder(session("/elsewhere", "another"), name) == folder


def test_a_path_of_a_server_of_spark_connect_is_none_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    assert known_folder(cast("SparkSession", ConnectSession()), "`delta`.`/lake/t`") is None


def test_of_another_catalog_the_details_say_it() -> None:
    assert folder_of(session("/here", "another", "file:/there/t"), "other.lake.t") == "/there/t"
    assert folder_of(session("/here", None, "file:/there/t"), "lake.t") == "/here"
    assert folder_of(session("/here", "another", "s3a://there/t"), "other.lake.t") == "s3://there/t"
    assert folder_of(session("/here", "another", "hdfs://there/t"), "other.lake.t") is None
