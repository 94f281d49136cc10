"""scripts/release as a maintainer runs it: what is in dist/ afterwards, and that a second run makes the same bytes.

Works in a copy of the committed tree. Slow: it installs the wheel with all its packages from the package index.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]


def release(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([tree / "scripts" / "release", *arguments], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("release") / "tree"
    subprocess.run(["git", "clone", "--quiet", "--local", PROJECT, copy], check=True)
    (copy / ".venv").symlink_to(os.path.realpath(PROJECT / ".venv"))
    return copy


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_two_releases_are_the_same_bytes_and_say_what_to_upload(tree: Path) -> None:
    sums = set()
    for _ in range(2):
        done = release(tree, "--rehearse")
        assert done.returncode == 0, done.stdout + done.stderr
        sums.add((tree / "dist" / "SHA256SUMS").read_text())
    assert len(sums) == 1
    made = dict(reversed(line.split()) for line in sums.pop().splitlines())
    assert {path.name for path in (tree / "dist").iterdir()} == {*made, "SHA256SUMS"}
    for name, digest in made.items():
        assert hashlib.sha256((tree / "dist" / name).read_bytes()).hexdigest() == digest
        assert name in done.stdout
    assert "twine upload dist/*.whl dist/*.tar.gz" in done.stdout


@pytest.mark.slow
def test_the_bill_of_materials_names_every_pinned_package(tree: Path) -> None:
    (made,) = (tree / "dist").glob("*.cdx.json") or [None]
    bill = json.loads(made.read_text())
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["name"] == "spark-mariadb-binlog"
    pinned = re.findall(r"^([\w.-]+)==(\S+)", (PROJECT / "constraints" / "daemon.txt").read_text(), re.MULTILINE)
    found = {(one["name"], one["version"]): one for one in bill["components"]}
    assert found.keys() == set(pinned)
    assert all(one["externalReferences"] or one["hashes"] for one in found.values())


@pytest.mark.slow
def test_a_release_wants_a_named_version_and_a_clean_tree(tree: Path) -> None:
    refused = release(tree)
    assert refused.returncode == 1
    assert "name the version in both" in refused.stderr or "has no tag" in refused.stderr
    (tree / "README.md").write_text("changed")
    refused = release(tree, "--rehearse")
    assert refused.returncode == 1
    assert "commit first" in refused.stderr
