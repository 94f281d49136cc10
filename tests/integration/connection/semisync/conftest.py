"""Primaries whose commits wait for replicas, and replicas that end with their test."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.mariadb import MariaDb
from tests.integration.connection.semisync.semi_sync import OPTIONS, start_semi_sync, with_database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from replica.live.embedded import EmbeddedReplica


@pytest.fixture(scope="module")
def primary(server_version: str) -> Iterator[MariaDb]:
    with MariaDb(server_version, *OPTIONS) as server:
        yield with_database(server)


@pytest.fixture(scope="module")
def any_primary() -> Iterator[MariaDb]:
    with MariaDb(None, *OPTIONS) as server:
        yield with_database(server)


@pytest.fixture
def running() -> Iterator[Callable[..., EmbeddedReplica]]:
    with contextlib.ExitStack() as stack:
        yield functools.partial(start_semi_sync, stack)
