"""Recorded files, and a reading of them as the command makes it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from replica.readers.rows.names import Names
from replica.readers.rows.progress import Notices
from replica.readers.rows.reading import OPTIONS, ChosenTransactions, Reading
from tests.vectors.load import HERE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def vector(name: str) -> Path:
    """`11.8/transactions`"""
    return HERE / f"{name}.binlog"


def reading(
    files: Sequence[Path | str],
    *,
    patterns: Sequence[str] = (),
    selection: ChosenTransactions | None = None,
    **more: Any,
) -> Reading:
    notices = Notices(io.StringIO())
    names = Names(patterns, notices, OPTIONS.policy, more.pop("schema", None), need_names=more.pop("need_names", False))
    return Reading([str(file) for file in files], selection or ChosenTransactions(), names, notices, **more)


def said(read: Reading) -> str:
    """What went to standard error."""
    assert isinstance(read.notices.stream, io.StringIO)
    return read.notices.stream.getvalue()
