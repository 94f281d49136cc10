"""Random tables, random values, random settings: what is read is what SELECT gives, or else one column is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from replica.protocol.charset import CHARSETS
from tests.integration.edges.log import version
from tests.integration.rows.type_cases import HEX, NUMBER, Case
from tests.integration.rows.type_checks import check, written
from tests.integration.rows.type_tables import TypeTable

if TYPE_CHECKING:
    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server

MAX_COLUMNS = 8
MAX_VALUES = 4


def values(strategy: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(strategy, min_size=1, max_size=MAX_VALUES).map(tuple)


def quoted(text: str) -> str:
    return "_utf8mb4'" + text.replace("\\", "\\\\").replace("'", "''").replace("\0", "\\0") + "'"


@st.composite
def integers(draw: st.DrawFn) -> Case:
    name, bits = draw(
        st.sampled_from([("TINYINT", 8), ("SMALLINT", 16), ("MEDIUMINT", 24), ("INT", 32), ("BIGINT", 64)])
    )
    if draw(st.booleans()):
        return Case(f"{name} UNSIGNED", draw(values(st.integers(0, (1 << bits) - 1).map(str))))
    return Case(name, draw(values(st.integers(-(1 << bits - 1), (1 << bits - 1) - 1).map(str))))


@st.composite
def decimals(draw: st.DrawFn) -> Case:
    precision = draw(st.integers(1, 65))
    scale = draw(st.integers(0, min(precision, 38)))
    number = st.integers(-(10**precision) + 1, 10**precision - 1)
    text = number.map(lambda n: f"{'-' if n < 0 else ''}{abs(n) // 10**scale}.{abs(n) % 10**scale:0{scale or 1}d}")
    return Case(f"DECIMAL({precision},{scale})", draw(values(text if scale else number.map(str))))


@st.composite
def floats(draw: st.DrawFn) -> Case:
    if draw(st.booleans()):
        return Case("DOUBLE", draw(values(st.floats(allow_nan=False, allow_infinity=False).map("{:.17e}".format))))
    single = st.floats(allow_nan=False, allow_infinity=False, width=32)
    return Case("FLOAT", draw(values(single.map("{:.17e}".format))), "CAST({c} AS DOUBLE)")


@st.composite
def bits(draw: st.DrawFn) -> Case:
    width = draw(st.integers(1, 64))
    return Case(f"BIT({width})", draw(values(st.integers(0, (1 << width) - 1).map(str))), NUMBER)


@st.composite
def temporals(draw: st.DrawFn) -> Case:
    fsp = draw(st.integers(0, 6))
    micro = st.integers(0, 999_999)
    clock = st.builds("{:02d}:{:02d}:{:02d}.{:06d}".format, st.integers(0, 23), *[st.integers(0, 59)] * 2, micro)
    day = st.builds("{:04d}-{:02d}-{:02d}".format, st.integers(0, 9999), st.integers(0, 12), st.integers(0, 31))
    valid = st.dates().map(str)
    kind = draw(st.sampled_from(["DATE", "DATETIME", "TIMESTAMP", "TIME"]))
    if kind == "DATE":
        return Case(kind, draw(values(st.one_of(day, valid).map(quoted))))
    if kind == "TIME":
        long = st.builds("{}{}:{:02d}:{:02d}.{:06d}".format, st.sampled_from(["", "-"]), st.integers(0, 838),
                         *[st.integers(0, 59)] * 2, micro)  # fmt: skip
        return Case(f"TIME({fsp})", draw(values(long.map(quoted))))
    if kind == "TIMESTAMP":
        day = st.builds("{:04d}-{:02d}-{:02d}".format, st.integers(1971, 2037), st.integers(1, 12), st.integers(1, 28))
        return Case(f"TIMESTAMP({fsp})", draw(values(st.builds("'{} {}'".format, day, clock))))
    return Case(f"DATETIME({fsp})", draw(values(st.builds("'{} {}'".format, st.one_of(day, valid), clock))))


@st.composite
def labels(draw: st.DrawFn) -> Case:
    count = draw(st.sampled_from([1, 2, 7, 8, 9, 16, 33, 64]))
    declared = ",".join(quoted(f"é{i}'") for i in range(count)).replace("_utf8mb4", "")
    if draw(st.booleans()):
        return Case(f"SET({declared})", draw(values(st.integers(0, (1 << count) - 1).map(str))))
    return Case(f"ENUM({declared})", draw(values(st.integers(1, count).map(str))))


@st.composite
def texts(draw: st.DrawFn) -> Case:
    charset = CHARSETS[draw(st.sampled_from(sorted(CHARSETS)))]
    some = "".join(c for c in (charset.table or "é€漢ж가나中文") if c.isprintable() and c != "\ufffd") + "abc"
    one = st.text(alphabet=some, max_size=12)  # what a set lacks the server stores as '?'
    size = draw(st.sampled_from([12, 63, 64, 255, 300]))
    form = draw(st.sampled_from([f"CHAR({min(size, 255)})", f"VARCHAR({size})", "TINYTEXT", "TEXT", "LONGTEXT"]))
    compressed = " COMPRESSED" if draw(st.booleans()) and not form.startswith("CHAR") else ""
    if form.startswith("CHAR"):
        one = one.map(str.rstrip)
    return Case(f"{form}{compressed} CHARACTER SET {charset.name}", draw(values(one.map(quoted))))


@st.composite
def binaries(draw: st.DrawFn) -> Case:
    size = draw(st.sampled_from([1, 16, 255, 256, 500]))
    form = draw(st.sampled_from([f"BINARY({min(size, 255)})", f"VARBINARY({size})", "TINYBLOB", "BLOB", "LONGBLOB"]))
    compressed = " COMPRESSED" if draw(st.booleans()) and not form.startswith("BINARY") else ""
    data = st.one_of(st.binary(max_size=min(size, 255)), st.integers(0, min(size, 255)).map(lambda n: b"\0" * n))
    return Case(f"{form}{compressed}", draw(values(data.map(lambda value: f"x'{value.hex()}'"))), HEX)


COLUMNS = st.one_of(integers(), decimals(), floats(), bits(), temporals(), labels(), texts(), binaries())


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,  # what a server makes of values never seen must not decide whether a suite passes
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    cases=st.lists(COLUMNS, min_size=1, max_size=MAX_COLUMNS).map(tuple),
    image=st.sampled_from(["FULL", "MINIMAL", "NOBLOB", "FULL_NODUP"]),
    metadata=st.sampled_from(["NO_LOG", "MINIMAL", "FULL"]),
    compress=st.booleans(),
)
def test_a_random_table(server: MariaDb, cases: tuple[Case, ...], image: str, metadata: str, *, compress: bool) -> None:
    if image == "FULL_NODUP" and version(server) < (11, 4):
        image = "FULL"
    log, found = written(server, [TypeTable("r", cases)], image, metadata, compress=compress)
    check(log, found, image, with_catalog=metadata != "FULL")
