"""Fixtures every test may ask for: real servers, one per version found, and the report of what was found.

`server_version` runs a test once per installed MariaDB: the oldest and the newest in the quick suite, which
`quick_on("ends")` says too, with `quick_on("newest")` the newest alone, all others with `pytest -m slow`. `server` is a
running one of it shared by a test module, `any_server` the same in one version only; `make_server` starts more, with
options. Without any server these tests fail and say what to run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

from replica.live.embedded import THREAD_NAME as REPLICA_THREAD
from tests.fixtures.class_archive import use_class_archive
from tests.fixtures.installation import MISSING, installations
from tests.fixtures.mariadb import MariaDb
from tests.fixtures.orphans import leave_no_orphans
from tests.fixtures.spark_home import unpacked_spark_home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TESTS = Path(__file__).parent

# The same on every machine, also where hypothesis would see a CI and take its own profile: no example has a time
# limit, no check of the speed or of the luck of the first draws ends a test, and no earlier run's examples are
# replayed. Each run draws others; a failure prints the example and the decorator that repeats exactly it.
settings.register_profile(
    "properties",
    deadline=None,
    derandomize=False,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
settings.load_profile("properties")


def pytest_configure() -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # So a shell starts what runs in its background, and every process that a test interrupts would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    leave_no_orphans()
    os.environ.setdefault("SPARK_HOME", str(unpacked_spark_home()))
    use_class_archive()


def pytest_report_header() -> str:
    found = installations()
    names = ", ".join(f"{short} ({one.full_version})" for short, one in found.items())
    return f"MariaDB servers: {names or 'none. ' + MISSING}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--turn", type=int, help="run each test on one server version alone; another number, another one")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long files first: with several processes, a long file that starts last is waited for alone."""
    turn = config.getoption("turn")
    if turn is not None:
        chosen: dict[bool, list[pytest.Item]] = {True: [], False: []}
        for item in items:
            chosen[_has_its_turn(item, turn)].append(item)
        items[:] = chosen[True]
        config.hook.pytest_deselected(items=chosen[False])
    longest_first = {name: place for place, name in enumerate(("system", "spark", "integration", "unit"))}
    items.sort(key=lambda item: longest_first.get(item.path.relative_to(TESTS).parts[0], 0))


def _has_its_turn(item: pytest.Item, turn: int) -> bool:
    """Return whether a test runs on the server version of its name and this number, as one without a version does."""
    cases = getattr(item, "callspec", None)
    version = cases and cases.params.get("server_version")
    versions = list(installations())
    if version not in versions:
        return True
    test = item.name.partition("[")[0]
    return bool(version == versions[(crc32(test.encode()) + turn) % len(versions)])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "server_version" in metafunc.fixturenames:
        # An empty list would make pytest skip the test, and a skipped test hides that nothing ran.
        versions = list(installations()) or ["no-server"]
        mark = metafunc.definition.get_closest_marker("quick_on")
        word = mark.args if mark else ("ends",)
        quick = {("newest",): versions[-1:], ("ends",): [versions[0], versions[-1]]}.get(word)
        if quick is None or (mark and mark.kwargs):
            raise pytest.UsageError(f"{metafunc.definition.nodeid}: quick_on takes 'newest' or 'ends', not {word}")
        cases = [version if version in quick else pytest.param(version, marks=pytest.mark.slow) for version in versions]
        metafunc.parametrize("server_version", cases, indirect=True, scope="session")


@pytest.fixture(scope="session")
def server_version(request: pytest.FixtureRequest) -> str:
    version = str(request.param)
    if version == "no-server":
        pytest.fail(MISSING, pytrace=False)
    return version


@pytest.fixture(scope="module")
def server(server_version: str) -> Iterator[MariaDb]:
    """One running server per version and test module; tests leave no user tables behind that others trip on."""
    with MariaDb(server_version) as running:
        yield running


@pytest.fixture(scope="module")
def any_server() -> Iterator[MariaDb]:
    """One running server of one version, for what no version of the server could change."""
    with MariaDb() as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def no_replica_is_left() -> Iterator[None]:
    """Fail a module that leaves a replica's thread: it reconnects for ever, and logs into other modules' tests."""
    before = set(threading.enumerate())
    yield
    left = [one for one in threading.enumerate() if one.name == REPLICA_THREAD and one not in before]
    assert not left, f"{len(left)} embedded replicas of this module were not closed"


@pytest.fixture
def make_server() -> Iterator[Callable[..., MariaDb]]:
    """Start servers that live until the test ends: `make_server("11.8", "--skip-log-bin", tls=True)`."""
    with contextlib.ExitStack() as stack:

        def make(version: str | None = None, *options: str, **keywords: object) -> MariaDb:
            return stack.enter_context(MariaDb(version, *options, **keywords))  # type: ignore[arg-type]

        yield make
