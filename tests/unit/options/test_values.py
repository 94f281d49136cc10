from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr, TypeAdapter, ValidationError

from replica.options.values import Bytes, Endpoint, Hosts, Listen, Seconds, WholeSeconds, endpoint, written


def read(kind: object, value: object) -> object:
    return TypeAdapter(kind).validate_python(value)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Bytes, "64m", 64 << 20),
        (Bytes, " 2 GB ", 2 << 30),
        (Bytes, "1t", 1 << 40),
        (Bytes, 7, 7),
        (Seconds, "500ms", 0.5),
        (Seconds, "1.5h", 5400.0),
        (Seconds, "2D", 172_800.0),
        (Seconds, "10", 10.0),
        (WholeSeconds, "1h", 3600),
        (WholeSeconds, 60, 60),
        (Hosts, "db1, db2:3307", ("db1", "db2:3307")),
        (Hosts, ["db1", "db2"], ("db1", "db2")),
        (Listen, "127.0.0.1:9306", ("127.0.0.1", 9306)),
        (Listen, ":9306", ("", 9306)),
        (Listen, "[::1]:9306", ("::1", 9306)),
        (Listen, "metrics.internal:80", ("metrics.internal", 80)),
    ],
)
def test_what_people_write(kind: object, text: object, value: object) -> None:
    assert read(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text", "word"),
    [
        (Bytes, "lots", "500k"),
        (Bytes, "-1", "500k"),
        (Bytes, 0, "outside 1 to"),
        (Bytes, "0k", "outside 1 to"),
        (Bytes, "9000000000000t", "outside 1 to"),
        (Bytes, "9" * 5000, "500k"),
        (Seconds, "1w", "2d"),
        (Seconds, "0s", "not above 0"),
        (Seconds, "366d", "longer than 365d"),
        (Seconds, math.nan, "not above 0"),
        (Seconds, "1e3", "500ms"),
        (WholeSeconds, "1.5s", "integer"),
        (Listen, "9306", "host:port"),
        (Listen, "::1:9306", "host:port"),
        (Listen, "h:0", "host:port"),
        (Listen, "h:65536", "host:port"),
    ],
)
def test_what_is_refused_says_what_it_should_be(kind: object, text: object, word: str) -> None:
    with pytest.raises(ValidationError, match=word):
        read(kind, text)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("relay_max_bytes", 4 << 30, "4g"),
        ("relay_max_bytes", 2 << 40, "2t"),
        ("relay_max_bytes", (1 << 20) + 1, "1048577"),
        ("heartbeat_s", 0.5, "0.5s"),
        ("heartbeat_s", 90.0, "90s"),
        ("retain_s", 7 * 86_400.0, "7d"),
        ("retain_s", 1_234_567.0, "1234567s"),
        ("retain_s", 1_234_567, "1234567s"),
        ("retain_s", 1_234_567.25, "1234567.25s"),
        ("heartbeat_s", 0.00005, "0.00005s"),
        ("semi_sync", True, "true"),
        ("host", ("db1", "db2:3307"), "db1,db2:3307"),
        ("http_listen", ("::1", 9306), "[::1]:9306"),
        ("http_listen", ("", 9306), ":9306"),
        ("password", SecretStr("hunter2"), "********"),
        ("relay_dir", None, ""),
        ("port", 3306, "3306"),
    ],
)
def test_values_as_people_write_them(name: str, value: object, text: str) -> None:
    assert written(name, value) == text


@given(st.floats(0.0001, 365 * 86_400.0) | st.integers(1, 365 * 86_400))
def test_a_time_that_is_written_is_read_as_the_same(length_s: float) -> None:
    assert TypeAdapter(Seconds).validate_python(written("retain_s", length_s)) == length_s


def test_endpoints_print_as_they_are_written() -> None:
    assert str(endpoint("db1", 3306)) == "db1:3306"
    assert str(endpoint("[fe80::1%eth0]:3307", 3306)) == "[fe80::1%eth0]:3307"
    assert str(Endpoint("", 0, "/run/mysqld.sock")) == "/run/mysqld.sock"
    with pytest.raises(ValueError, match="outside 1 to 65535"):
        endpoint("db1:65536", 3306)
    with pytest.raises(ValueError, match="neither name"):
        endpoint("db1:", 3306)


@pytest.mark.parametrize("text", ["a..b", f"{'y' * 64}.com", "abc:", "[1.2.3]", "[::1", "::g", "", "db 1"])
def test_what_no_resolver_takes_is_refused_before_it_is_asked(text: str) -> None:
    with pytest.raises(ValueError, match="neither name, name:port nor"):
        endpoint(text, 3306)


@pytest.mark.parametrize("text", ["db_1.internal", "b\u00fccher.example", "localhost.", "10.0.0.7", "::ffff:10.0.0.7"])
def test_names_and_addresses_of_all_kinds_are_taken(text: str) -> None:
    assert endpoint(text, 3306) == Endpoint(text, 3306)
