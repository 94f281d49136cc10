"""Ahead-of-time compilation: every kernel is found and compiled as calls need it, and --check tells what was done."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from replica.native import warm
from replica.relay_log.kernels import kernel_deframe

advance: Any = kernel_deframe.advance
PROJECT = Path(__file__).resolve().parents[3]


def test_every_kernel_is_found() -> None:
    names = [name for _, name in warm.kernel_names()]
    assert {"deframe", "scan_range", "decode_typed", "decode_variant", "count_images", "write_gtids"} <= set(names)
    assert len(names) == len(set(names))


def test_a_kernel_is_compiled_before_it_is_called() -> None:
    warm.compile_kernel("replica.relay_log.kernels.kernel_deframe", "advance")
    assert advance.is_loaded
    assert advance.is_cached()
    assert advance(100, 50, 150) == 150


def test_check_says_no_before_anything_was_compiled(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "replica.native.warm", "--check"], cwd=PROJECT, env=environment, check=False
    )
    assert done.returncode == 1


def test_a_module_without_a_kernel_is_an_error() -> None:
    modules = ("replica.native.warm", "replica.gone", "replica.relay_log.kernels.kernel_deframe")
    done = subprocess.run(
        [sys.executable, "-m", "replica.native.warm", "--only", *modules],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == "no kernel in replica.gone, replica.native.warm\n"
    assert done.returncode == 1


def test_threads_that_call_a_kernel_at_once_load_it_once() -> None:
    code = (
        "from concurrent.futures import ThreadPoolExecutor as Pool\n"
        "from replica.relay_log.kernels.kernel_deframe import advance\n"
        "with Pool(16) as pool:\n"
        "    print(set(pool.map(lambda n: advance(100, 50, 150 + n * 0), range(2000))), advance.compile())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stdout == "{150} None\n"
