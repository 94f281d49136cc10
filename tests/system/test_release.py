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

from replica.version import __version__
from tools.proofs.full_run.record import PASSED, Outcome, Record, gaps, head, write
from tools.proofs.full_run.steps import STEPS

PROJECT = Path(__file__).resolve().parents[2]
PASSING = Outcome(PASSED, "2026-11-29", 1.0, "a command")


def git(tree: Path, *arguments: str) -> None:
    who = ("-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", tree, *who, *arguments], check=True, capture_output=True)


def release(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([tree / "scripts" / "release", *arguments], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cloned(tmp_path_factory.mktemp("release"))


def cloned(folder: Path) -> Path:
    """Return a copy of the committed tree, with our packages."""
    copy = folder / "tree"
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


def test_a_release_wants_a_full_run_of_its_code(tmp_path: Path) -> None:
    tree = cloned(tmp_path)
    (tree / "CHANGELOG.md").write_text(f"# Changelog\n\n## {__version__}\n")
    write(tree, Record(head(tree), {step.name: PASSING for step in STEPS}))
    git(tree, "commit", "--all", "--message", "name the version, with its record")
    git(tree, "tag", f"v{__version__}")
    assert gaps(tree, [step.name for step in STEPS]) == []
    (tree / "replica" / "errors.py").write_text("")
    git(tree, "commit", "--all", "--message", "a change after the full run")
    git(tree, "tag", "--force", f"v{__version__}")
    refused = release(tree)
    assert refused.returncode == 1
    assert "does not cover this code" in refused.stderr
    assert "replica/errors.py" in refused.stderr


@pytest.mark.slow
def test_a_release_wants_a_named_version_and_a_clean_tree(tree: Path) -> None:
    refused = release(tree)
    assert refused.returncode == 1
    assert "name the version in both" in refused.stderr or "has no tag" in refused.stderr
    (tree / "README.md").write_text("changed")
    refused = release(tree, "--rehearse")
    assert refused.returncode == 1
    assert "commit first" in refused.stderr
