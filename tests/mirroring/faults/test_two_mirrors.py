"""Two mirrors with control tables and checkpoints of their own, and the same targets: the second one is refused."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.mariadb import MariaDb
from tests.mirroring.mirrors import fill_shop

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]

BESIDE = """
from streaming_source import mirror
first = mirror(spark, **{first!r})
try:
    first.processAllAvailable()
    told = ""
    try:
        second = mirror(spark, **{second!r})
        second.awaitTermination(120)
        second.stop()
    except Exception as error:
        told = str(error)
    import pymysql
    pymysql.connect(autocommit=True, **{server!r}).query("INSERT INTO shop.a VALUES (200, 2)")
    first.processAllAvailable()
finally:
    first.stop()
result = told
"""


def test_the_second_is_refused_and_the_first_goes_on(mirrored: Callable[..., Mirrored], tmp_path: Path) -> None:
    with MariaDb("11.8") as primary:
        fill_shop(primary, "a", "b")
        mirror = mirrored(primary, "shop", trigger=None)
        other = {
            "control": f"{mirror.lake}.other_control",
            "checkpointLocation": str(tmp_path / "other"),
            "relayDir": str(tmp_path / "other-relay"),
            "trigger": {"availableNow": True},
        }
        server = {"host": primary.host, "port": primary.port, "user": "root", "password": primary.password}
        code = BESIDE.format(first=mirror.arguments, second=mirror.arguments | other, server=server)
        told = mirror.workbench.run(code)
        refused = (
            rf"ConfigError: the target `{mirror.lake}`\.`a` belongs to another mirror, [0-9a-f-]+\. This mirror is "
            rf"[0-9a-f-]+, with the control table `?{mirror.lake}`?\.`?other_control`?\. Choose another template"
        )
        assert re.search(refused, told), told
        mirror.assert_equal("a", "b")
        primary.sql("INSERT INTO shop.b VALUES (201, 1)")
        for _ in range(2):
            with pytest.raises(AssertionError, match=refused):
                mirror.run(**other)
        mirror.run(trigger={"availableNow": True})
        mirror.assert_equal("a", "b")
        assert mirror.states() == dict.fromkeys("ab", ("current", None))
