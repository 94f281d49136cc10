"""The session of the mirror's program: what spark-submit was told, and room for compiled classes where it was not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from streaming_source.mirroring.__main__ import CLASSES

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

_ASK = """
from streaming_source.mirroring.__main__ import CLASSES, _session
session = _session()
session.range(1).count()
print(session.conf.get(CLASSES[0]), session._jsparkSession.sessionState().conf().codegenCacheMaxEntries())
assert _session().conf.get(CLASSES[0]) == session.conf.get(CLASSES[0])
"""


@pytest.mark.parametrize(("told", "kept"), [(None, CLASSES[1]), ("77", "77")])
def test_the_program_keeps_more_compiled_classes_unless_it_is_told_how_many(told: str | None, kept: str) -> None:
    given = f"--conf {CLASSES[0]}={told} " if told else ""
    environment = os.environ | {"PYSPARK_SUBMIT_ARGS": f"{given}--master local[1] pyspark-shell"}
    done = subprocess.run([sys.executable, "-c", _ASK], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [kept, kept]
