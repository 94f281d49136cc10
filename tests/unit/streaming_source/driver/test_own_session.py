"""The settings of a mirror's session: set, reset or left to the user, and all in its page.

`tests/mirroring/sessions/test_hostile_settings.py` runs mirrors under others.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from pyspark.errors import AnalysisException

from streaming_source.driver.own_session import KEPT, PINNED, RESET, pin
from tests.fixtures.installation import PROJECT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (PROJECT / "docs" / "mirror-reference.md").read_text(encoding="utf-8")


class Settings:
    """The settings of a session, of which one is of its start."""

    fixed = "spark.sql.legacy.fixed"

    def __init__(self, **settings: str) -> None:
        self.all = {"spark.sql.legacy.fixed": "true", **settings}

    def keys(self) -> Settings:
        return self

    def mkString(self, between: str) -> str:  # noqa: N802  (Scala's name)
        return between.join(self.all)

    def set(self, name: str, value: str) -> None:
        self.all[name] = value

    def unset(self, name: str) -> None:
        if name == self.fixed:
            raise AnalysisException("it is static")
        del self.all[name]


class Session:
    """A session in a micro-batch: what was set when it began is a property of its tasks, too."""

    def __init__(self, **settings: str) -> None:
        self.conf = Settings(**settings)
        self.of_tasks = dict(self.conf.all)

    @property
    def _jsparkSession(self) -> SimpleNamespace:  # noqa: N802  (Spark's name)
        of_java = SimpleNamespace(getAllConfs=lambda: self.conf)
        return SimpleNamespace(sessionState=lambda: SimpleNamespace(conf=lambda: of_java))

    @property
    def sparkContext(self) -> Session:  # noqa: N802  (Spark's name)
        return self

    def setLocalProperty(self, name: str, value: str | None) -> None:  # noqa: N802  (Spark's name)
        assert value is None
        del self.of_tasks[name]


def pinned(**settings: str) -> dict[str, str]:
    session = Session(**settings)
    pin(cast("SparkSession", session))
    assert session.of_tasks.keys() <= session.conf.all.keys()
    return session.conf.all


def test_what_changes_values_is_ours_and_the_rest_is_the_users() -> None:
    ours = {setting.name: setting.value for setting in PINNED}
    theirs = {"spark.sql.shuffle.partitions": "7", "spark.sql.catalog.lake": "c", "fs.s3a.access.key": "k"}
    theirs |= dict.fromkeys(KEPT, "x")
    foreign = {f"{family.prefix}anything": "x" for family in RESET} | dict.fromkeys(ours, "x")
    assert pinned(**theirs, **foreign) == ours | theirs | {Settings.fixed: "true"}


@pytest.mark.parametrize("setting", PINNED, ids=lambda setting: setting.name)
def test_the_page_has_each_setting(setting: object) -> None:
    name, value, reason = cast("tuple[str, str, str]", setting)
    assert (f"{name}={value}" if value else f"{name} (unset)") in PAGE.splitlines()
    assert reason


@pytest.mark.parametrize("family", RESET, ids=lambda family: family.prefix)
def test_the_page_has_each_family(family: object) -> None:
    prefix, reason = cast("tuple[str, str]", family)
    families = PAGE.partition("have the defaults of Spark and Delta: ")[2].partition(".\n\n")[0]
    assert f"`{prefix}…`" in families
    assert reason
