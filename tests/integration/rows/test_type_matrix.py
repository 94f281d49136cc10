"""Every type x nullable x metadata level x row image: what both decoders read is what the same server's SELECT gives.

Each combination writes every value of every case, changes it and removes it, in one binlog file. Images before and
after are compared with SELECT as it was then; columns that an image leaves out have to be those that it should.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pymysql
import pytest

from replica.rows.types.types import NAMES
from tests.integration.edges.log import version
from tests.integration.rows.type_cases import CASES
from tests.integration.rows.type_checks import check, written
from tests.integration.rows.type_tables import tables

if TYPE_CHECKING:
    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server


IMAGES, METADATA = ("FULL", "MINIMAL", "NOBLOB", "FULL_NODUP"), ("NO_LOG", "MINIMAL", "FULL")
QUICK = {("NO_LOG", "FULL"), ("FULL", "FULL"), ("MINIMAL", "MINIMAL"), ("FULL", "NOBLOB"), ("NO_LOG", "FULL_NODUP")}
"""Each kind of image and of metadata; with `-m slow` all pairs."""


@pytest.mark.parametrize(
    ("metadata", "image"),
    [
        (metadata, image) if (metadata, image) in QUICK else pytest.param(metadata, image, marks=pytest.mark.slow)
        for metadata in METADATA
        for image in IMAGES
    ],
)
def test_every_image_is_what_select_gave(server: MariaDb, metadata: str, image: str) -> None:
    if image == "FULL_NODUP" and version(server) < (11, 4):
        with pytest.raises(pymysql.err.OperationalError, match="FULL_NODUP"):
            server.sql("SET SESSION binlog_row_image = FULL_NODUP")
        return
    known = tables([case for case in CASES if case.since <= version(server)])
    log, found = written(server, known, image, metadata)
    check(log, found, image, with_catalog=True)
    if metadata == "FULL":  # the stream alone is enough then
        check(log, found, image, with_catalog=False)


def test_the_matrix_has_every_type_of_the_type_table() -> None:
    declared = " ".join(case.declaration.lower() for case in CASES)
    named = set(NAMES)
    subtypes = {"linestring", "multipoint", "multilinestring", "multipolygon", "geometrycollection"}
    assert {name for name in named - subtypes if name not in declared} == set()
