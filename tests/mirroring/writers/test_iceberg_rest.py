"""format="iceberg" on a REST catalog server: all modes, what each writer holds, and a catalog that is killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fixtures.rest_catalog import RestCatalog
from tests.mirroring.writers.test_iceberg import by_pyiceberg, follow_modes, states, table_of
from tests.mirroring.writers.test_writer_contract import RUN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb
    from tests.mirroring.mirrors import Mirrored
    from tests.recipes.workbench import Workbench

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1800)]

KILL = """
import os, signal
from streaming_source.mirroring.writers.iceberg import {module}
whole = {module}.{function}
def killing({parameters}):
    {before}
    os.kill({pid}, signal.SIGKILL)
    {after}
{module}.{function} = killing
"""
MEND = "{module}.{function} = whole"
MOMENTS = {
    "after the data files": ("tables", "write_rows", "rows, files", "found = whole(rows, files)", "return found"),
    "before the commit": ("tables", "stage_snapshot", "*given", "", "whole(*given)"),
    "before the control table": ("control", "stage_snapshot", "*given", "", "whole(*given)"),
}
"""Where the catalog is killed: a function of the driver, and what it does before and after that."""


@pytest.fixture
def shop(primary: MariaDb) -> Iterator[MariaDb]:
    primary.sql("CREATE DATABASE shop")
    yield primary
    primary.sql("DROP DATABASE shop")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestCatalog]:
    with RestCatalog(tmp_path / "catalog") as running:
        yield running


def test_each_mode_holds_what_it_promises_after_crashes(
    shop: MariaDb, server: RestCatalog, mirrored: Callable[..., Mirrored]
) -> None:
    follow_modes(shop, server.properties, mirrored)


def test_a_killed_catalog_loses_and_doubles_nothing(
    shop: MariaDb, server: RestCatalog, mirrored: Callable[..., Mirrored]
) -> None:
    shop.sql(
        "USE shop",
        "CREATE TABLE now (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE log (id INT PRIMARY KEY, v INT)",
        "INSERT INTO now SELECT seq, seq FROM seq_1_to_20",
    )
    rules = {"shop.log": {"mode": "append_log"}}
    mirror = mirrored(shop, "shop", rules=rules, format="iceberg", icebergCatalog=server.properties)
    mirror.run()
    for number, (module, function, parameters, before, after) in enumerate(MOMENTS.values()):
        shop.sql(
            "USE shop",
            f"UPDATE now SET v = v + 100 WHERE id % 3 = {number}",
            f"INSERT INTO now VALUES ({100 + number}, 0)",
            f"DELETE FROM now WHERE id = {number + 1}",
            f"INSERT INTO log VALUES ({number}, {number})",
        )
        names = {"module": module, "function": function}
        code = KILL.format(**names, parameters=parameters, before=before or "pass", after=after, pid=server.pid)
        with pytest.raises(AssertionError) as ended:
            mirror.run(before=code)
        error = str(ended.value)
        mirror.workbench.run(MEND.format(**names))
        assert "StorageError: the Iceberg catalog lakehouse" in error, (module, function, error)
        assert "start the mirror again: it repeats the batch" in error, error
        with pytest.raises(AssertionError) as refused:
            mirror.run()
        assert "StorageError: the Iceberg catalog lakehouse" in str(refused.value), "started without its catalog"
        server.kill()
        server.start()
        mirror.run()
        assert states(mirror) == {"log": ["current", None], "now": ["current", None]}
        rows = by_pyiceberg(table_of(server.properties, f"{mirror.lake}.now"))
        assert sorted((list(row.values()) for row in rows), key=str) == sorted(mirror.source("now"), key=str)
        log = by_pyiceberg(table_of(server.properties, f"{mirror.lake}.log"))
        assert sorted(row["id"] or "" for row in log) == [str(each) for each in range(number + 1)], (module, function)


@pytest.mark.parametrize(
    "call",
    [
        "broken_off(own_session(spark), {folder!r}, writer_contract.altered_and_filled, {named})",
        "broken_off(own_session(spark), {folder!r}, writer_contract.emptied_and_filled, {named})",
        "broken_off(own_session(spark), {folder!r}, writer_contract.read_again, soft=True, {named})",
        "iceberg_twins(own_session(spark), {folder!r}, {catalog!r})",
        "iceberg_unanswered(own_session(spark), {folder!r}, {catalog!r})",
    ],
)
def test_each_batch_is_in_the_target_once(workbench: Workbench, server: RestCatalog, tmp_path: Path, call: str) -> None:
    folder, catalog = str(tmp_path / "t"), server.properties
    named = f"named=writer_contract.iceberg_table(spark, {folder!r}, {catalog!r})"
    assert workbench.run(RUN.format(call=call.format(folder=folder, catalog=catalog, named=named))) == []
