"""Ahead-of-time compilation: every kernel is found and compiled as calls need it, and --check tells what was done."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from replica.native import warm
from replica.relay_log.kernel_deframe import advance

if TYPE_CHECKING:
    import pytest

PROJECT = Path(__file__).resolve().parents[3]


def test_every_kernel_is_found() -> None:
    names = [name for _, name in warm.kernel_names()]
    assert {"deframe", "scan_range", "decode_typed", "decode_variant", "count_images", "write_gtids"} <= set(names)
    assert len(names) == len(set(names))


def test_a_kernel_is_compiled_for_the_arguments_it_is_called_with() -> None:
    warm.compile_kernel("replica.relay_log.kernel_deframe", "advance")
    before = set(advance.signatures)
    assert advance(100, 50, 150) == 150
    assert set(advance.signatures) == before


def test_check_says_no_before_anything_was_compiled(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "replica.native.warm", "--check"], cwd=PROJECT, env=environment, check=False
    )
    assert done.returncode == 1


def test_what_was_compiled_at_one_place_says_nothing_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = warm.stamp(str(tmp_path))
    monkeypatch.setattr(warm, "ROOT", tmp_path / "another checkout")
    assert warm.stamp(str(tmp_path)) != here
    assert warm.stamp(str(tmp_path)).parent == here.parent == tmp_path
