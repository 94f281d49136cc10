"""What the name of Delta's jar tells. Sessions with and without Delta are in tests/spark/errors/test_delta_fit.py."""

from __future__ import annotations

import pytest

from streaming_source.sinks.delta import _versions_in


@pytest.mark.parametrize(
    ("jar", "told"),
    [
        ("file:/data/io.delta_delta-spark_4.2_2.13-4.4.0.jar", ("4.2", "4.4.0")),
        ("file:/data/delta-spark_4.10_2.13-5.0.0-SNAPSHOT.jar", ("4.10", "5.0.0")),
        ("file:/data/delta-spark_2.13-4.0.1.jar", ("4.0", "4.0.1")),
        ("file:/data/delta-spark_2.12-3.3.2.jar", ("3", "3.3.2")),
        ("file:/opt/platform/everything.jar", (None, "file:/opt/platform/everything.jar")),
        ("", (None, "")),
    ],
)
def test_a_name_tells_the_spark_and_the_release(jar: str, told: tuple[str | None, str]) -> None:
    assert _versions_in(jar) == told
