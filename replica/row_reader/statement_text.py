"""Decoding of a statement's text by the character set of its session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.errors import ReplicaError
from replica.protocol.charset import charset_of

if TYPE_CHECKING:
    from replica.protocol.events.query import StatusVars


def statement_text(query: bytes, status: StatusVars | None = None) -> str:
    """Decode a statement's characters. Without a known character set, the bytes are read as UTF-8."""
    if status is not None and status.charset is not None:
        try:
            return charset_of(status.charset[0]).decode(query)
        except ReplicaError:
            pass  # a collation of a newer server: keywords and most names are ASCII in every character set
    return query.decode("utf-8", "replace")
