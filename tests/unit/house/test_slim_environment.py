"""What is cut off a shared library, and what is not.

The environment is tested in tests/integration/house/test_slim_environment.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tools.slim_environment import REMOVED, loaded_length, strip


def library() -> Path:
    spec = find_spec("zstandard.backend_c")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin)


def test_a_stripped_library_is_shorter_and_works(tmp_path: Path) -> None:
    original = library().read_bytes()
    kept, cut = tmp_path / "kept.so", tmp_path / library().name
    shutil.copy(library(), kept)
    os.link(kept, cut)
    strip(cut)
    assert cut.stat().st_size == loaded_length(original) < len(original) / 2
    assert kept.read_bytes() == original  # the other name of what was one file
    assert cut.stat().st_mode == kept.stat().st_mode
    assert {path.name for path in tmp_path.iterdir()} == {kept.name, cut.name}
    program = "import backend_c; print(backend_c.__file__, backend_c.ZstdCompressor().compress(b'x' * 99)[:4].hex())"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == f"{cut} 28b52ffd\n"


def test_what_has_nothing_to_cut_off_stays_as_it_is(tmp_path: Path) -> None:
    cut = tmp_path / "cut.so"
    shutil.copy(library(), cut)
    strip(cut)
    for content in (b"", b"INPUT(libother.so)\n", b"\x7fELF", cut.read_bytes()):
        path = tmp_path / "library.so"
        path.write_bytes(content)
        strip(path)
        assert path.read_bytes() == content


def test_nothing_of_ours_is_named() -> None:
    project = Path(__file__).resolve().parents[3]
    for pattern in REMOVED:
        for package in ("replica", "streaming_source"):
            assert (project / package / "__init__.py").is_file()
            assert not list(project.glob(f"{package}/{pattern}")), pattern
