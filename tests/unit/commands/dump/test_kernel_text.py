"""The pieces of text that kernels write are those that Python writes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.commands.dump.rows import kernel_text as kd
from replica.commands.dump.rows import kernel_text as ke
from replica.native.compile import kernel

ROOM = 4096


@kernel
def run_number(q: int, value: int) -> int:
    return kd.put_number(q, value) - q


@kernel
def run_time(q: int, seconds: int) -> int:
    return kd.put_time(q, seconds) - q


@kernel
def run_decimal(q: int, p: int, size: int, scale: int) -> int:
    return kd.put_decimal(q, p, size, scale) - q


@kernel
def run_escaped(q: int, p: int, size: int, notation: int) -> int:
    used = ke.put_escaped(q, p, size, notation) - q
    return used if used == ke.escaped_size(p, size, notation) else -1


def written(function: Any, *arguments: int) -> bytes:
    out = np.zeros(ROOM, np.uint8)
    used = function(out.ctypes.data, *arguments)
    return out[:used].tobytes()


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_numbers(value: int) -> None:
    assert written(run_number, value) == str(value).encode()


@pytest.mark.parametrize("value", [-(1 << 63), -(1 << 63) + 1, (1 << 63) - 1, 0, 9, 10, -10, 10**18, 10**18 - 1])
def test_numbers_at_their_borders(value: int) -> None:
    assert written(run_number, value) == str(value).encode()


@given(st.integers(0, 0xFFFFFFFF))
def test_times(seconds: int) -> None:
    assert written(run_time, seconds).decode() == datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(0, 38))
def test_decimals(unscaled: int, scale: int) -> None:
    sizes = [size for size in (4, 8, 16) if -(1 << size * 8 - 1) <= unscaled < 1 << size * 8 - 1]
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    expected = ("-" if unscaled < 0 else "") + digits[: len(digits) - scale] + ("." + digits[-scale:] if scale else "")
    assert Decimal(expected) == Decimal(unscaled).scaleb(-scale) or len(digits) > 28
    for size in sizes:
        data = np.frombuffer(unscaled.to_bytes(size, "little", signed=True), np.uint8)
        assert written(run_decimal, data.ctypes.data, size, scale).decode() == expected


def escaped(text: bytes, notation: int) -> bytes:
    data = np.frombuffer(text + bytes(8), np.uint8)
    return written(run_escaped, data.ctypes.data, len(text), notation)


@given(st.text(max_size=60))
def test_text_in_json(text: str) -> None:
    assert (
        json.loads(b'"' + escaped(text.encode("utf-8", "replace"), ke.JSON) + b'"')
        == text.encode("utf-8", "replace").decode()
    )


def test_every_byte_in_json_in_every_place() -> None:
    for byte in range(128):
        for place in range(10):
            text = "x" * place + chr(byte) + "y" * 9
            assert json.loads(b'"' + escaped(text.encode(), ke.JSON) + b'"') == text


SQL_ESCAPES = {"\0": "\\0", "\n": "\\n", "\r": "\\r", "\x1a": "\\Z", "'": "\\'", "\\": "\\\\"}


@given(st.text(max_size=60))
def test_text_in_sql(text: str) -> None:
    encoded = text.encode("utf-8", "replace")
    expected = "".join(SQL_ESCAPES.get(letter, letter) for letter in encoded.decode())
    assert escaped(encoded, ke.SQL) == expected.encode()


def test_text_for_people_commands_no_terminal() -> None:
    text = escaped(bytes(range(128)), ke.PLAIN)
    assert all(32 <= byte < 127 for byte in text)
    assert b"\\x1b" in text.lower()
    assert b"\\x7f" in text.lower()
