"""A Spark driver with Delta tables in a process of its own, and mirrors that run in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fixtures.jars import JarsMissingError
from tests.fixtures.mariadb import MariaDb
from tests.mirroring.mirrors import Mirrored
from tests.mirroring.session import session_settings
from tests.recipes.workbench import Workbench

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def spark_settings(folder: Path) -> dict[str, str]:
    """Return the settings of a session with Delta tables; a missing jar fails the test."""
    try:
        return session_settings(folder)
    except JarsMissingError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="module")
def primary() -> Iterator[MariaDb]:
    """A server with the user of mirrors, for the tests of one module."""
    with MariaDb("11.8", "--binlog-row-metadata=FULL") as running:
        running.add_user()
        yield running


@pytest.fixture(scope="module")
def workbench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    folder = tmp_path_factory.mktemp("mirror")
    with Workbench(spark_settings(folder), folder, {}) as bench:
        yield bench


@pytest.fixture
def mirrored(workbench: Workbench, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Mirrored]:
    """Make the view of a mirror of a server's database; each has a namespace and a checkpoint of its own."""

    def make(primary: MariaDb, database: str, **options: object) -> Mirrored:
        return Mirrored(workbench, primary, database, tmp_path, options)

    return make
