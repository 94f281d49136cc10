"""scripts/get-jars: what it fetches is what is pinned, or it says why not. Ivy is real, its repository a folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.jars import JarsMissingError, delta_settings

PROJECT = Path(__file__).resolve().parents[3]
JAR = b"not really a jar, but these bytes"
SETTINGS = """
<ivysettings><settings defaultResolver="folder"/><resolvers><filesystem name="folder">
<artifact pattern="{folder}/[artifact]-[revision](-[classifier]).[ext]"/></filesystem></resolvers></ivysettings>
"""


class Tree:
    """The script in a tree of its own, with one pinned jar and a repository that may hold it."""

    def __init__(self, folder: Path, content: bytes | None) -> None:
        self.folder = folder
        (folder / "scripts").mkdir(parents=True)
        shutil.copy(PROJECT / "scripts" / "get-jars", folder / "scripts")
        (folder / "constraints").mkdir()
        digest = hashlib.sha256(JAR).hexdigest()
        pin = f"# a comment\norg.example thing 1.0 {digest}\norg.example thing:more 1.0 {digest}\n"
        (folder / "constraints" / "jars.list").write_text(pin, encoding="utf-8")
        repository = folder / "repository"
        repository.mkdir()
        if content is not None:
            for name in ("thing-1.0.jar", "thing-1.0-more.jar"):
                (repository / name).write_bytes(content)
        self.settings = folder / "ivysettings.xml"
        self.settings.write_text(SETTINGS.format(folder=repository), encoding="utf-8")
        self.jar = folder / "jars" / "thing-1.0.jar"

    def run(self) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = os.environ | {"PATH": path, "IVY_SETTINGS": str(self.settings)}
        command = [self.folder / "scripts" / "get-jars", "jars"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.spark
def test_a_pinned_jar_is_fetched_once(tmp_path: Path) -> None:
    tree = Tree(tmp_path, JAR)
    assert tree.run().returncode == 0
    assert tree.jar.read_bytes() == tree.jar.with_name("thing-1.0-more.jar").read_bytes() == JAR
    assert sorted(path.name for path in tree.jar.parent.iterdir()) == [".lock", "thing-1.0-more.jar", "thing-1.0.jar"]
    tree.settings.unlink()
    assert tree.run().returncode == 0  # nobody was asked


@pytest.mark.spark
@pytest.mark.parametrize(("content", "words"), [(b"other bytes", "is not the one"), (None, "could not be fetched")])
def test_another_jar_or_none_is_refused(tmp_path: Path, content: bytes | None, words: str) -> None:
    tree = Tree(tmp_path, content)
    done = tree.run()
    assert done.returncode == 1
    assert words in done.stderr
    assert not tree.jar.exists()


def test_without_a_folder_it_says_how_it_is_used() -> None:
    done = subprocess.run([PROJECT / "scripts" / "get-jars"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "get-jars DIR" in done.stdout


def test_a_missing_jar_is_an_error_that_names_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fixtures.jars.FOLDER", tmp_path)
    with pytest.raises(JarsMissingError, match=r"delta-spark.* not in .*scripts/setup fetches them"):
        delta_settings()
    for name in ("delta-spark_4.2_2.13-4.4.0", "delta-storage-4.4.0", "spark-catalyst_2.13-4.2.0-tests"):
        (tmp_path / f"{name}.jar").touch()
    assert str(tmp_path) in delta_settings()["spark.jars"]
    assert delta_settings(catalog="lake")["spark.jars"].endswith("-tests.jar")
