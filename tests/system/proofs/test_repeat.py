"""The `repeat:` line of every proof and soak: read by the same parser, it gives the run that failed once more."""

from __future__ import annotations

import re
import shlex
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.fuzz import __main__ as fuzz
from tools.fuzz.__main__ import Outcome
from tools.proofs import audit_proof, exactly_once, repeat
from tools.proofs.snapshot import __main__ as snapshot_program
from tools.proofs.snapshot import direct, proof
from tools.proofs.soak import __main__ as soak_program
from tools.proofs.soak.daemon import galera
from tools.proofs.soak.daemon import soak as daemon_soak
from tools.proofs.soak.mirror import soak as mirror_soak
from tools.proofs.soak.spark import soak as spark_soak

if TYPE_CHECKING:
    from collections.abc import Callable

SEED = 20261129
VERSION = "11.8"
UNLIKE = {"folder", "say"}
"""Of two runs of one command."""


class BrokenError(AssertionError):
    """What every run here ends with."""


class Runs:
    """Takes the place of the class that a program runs, and remembers what each run was to be."""

    def __init__(self) -> None:
        self.wanted: list[object] = []

    def __call__(self, *wanted: object, **more: object) -> object:
        alike = {name: value for name, value in more.items() if name not in UNLIKE}
        self.wanted.append(([one for one in wanted if not isinstance(one, Path)], alike))
        server = SimpleNamespace(version=VERSION)
        held: dict[str, object] = {name: {} for name in ("done", "hits", "faults", "stops")}
        metadata = more.get("metadata") or (wanted[1] if len(wanted) > 1 else None) or "FULL"
        return SimpleNamespace(
            run=self._run,
            load=SimpleNamespace(primary=server, statements={}),
            pair=SimpleNamespace(primary=server),
            source=SimpleNamespace(primary=server),
            breaking=SimpleNamespace(injected={}),
            metadata=metadata,
            **held,
        )

    @staticmethod
    def _run(*_: object, **__: object) -> None:
        raise BrokenError


def _raise(*_: object, **__: object) -> None:
    raise BrokenError


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runs:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = Runs()
    monkeypatch.setattr(daemon_soak, "Soak", found)
    monkeypatch.setattr(galera, "ClusterSoak", found)
    monkeypatch.setattr(spark_soak, "SparkSoak", found)
    monkeypatch.setattr(mirror_soak, "MirrorSoak", found)
    monkeypatch.setattr(proof, "SnapshotProof", found)
    monkeypatch.setattr(direct, "DirectProof", found)
    monkeypatch.setattr(soak_program, "delta_settings", dict)
    monkeypatch.setattr(snapshot_program, "delta_settings", dict)
    return found


def repeated(main: Callable[[list[str]], object], arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the command that a failing run prints."""
    try:
        main(arguments)
    except BrokenError as error:
        text = "\n".join(error.__notes__)
    else:
        text = capsys.readouterr().out
    found = re.findall(r"^repeat: (.*)$", text, re.MULTILINE)
    assert len(found) == 1, text
    return str(found[0])


@pytest.mark.parametrize(
    ("main", "program", "given"),
    [
        (
            soak_program.main,
            "scripts/soak",
            f"daemon --seed {SEED} --faults 1000000 --version 11.8 --minutes 1234567.5",
        ),
        (soak_program.main, "scripts/soak", f"galera --seed {SEED} --faults 12345678 --version 11.8"),
        (soak_program.main, "scripts/soak", f"spark --seed {SEED} --kills 12345678 --version 11.8"),
        (soak_program.main, "scripts/soak", f"spark --seed {SEED} --kills 1 --version 11.8 --sink parquet"),
        (
            soak_program.main,
            "scripts/soak",
            f"mirror --seed {SEED} --minutes 12345678 --kills 76543 --warehouses 12345 --metadata FULL --version 11.8",
        ),
        (
            soak_program.main,
            "scripts/soak",
            f"mirror --seed {1 << 60} --minutes 0.1 --version 11.8 --metadata NO_LOG --tables plain,altered",
        ),
        (
            snapshot_program.main,
            "scripts/prove snapshot",
            f"--seed {SEED} --rows 2000000 --kills 1234567 --version 11.8",
        ),
        (
            snapshot_program.main,
            "scripts/prove snapshot",
            f"--seed {SEED} --version 10.11 --sink parquet --start earliest --mutate drop",
        ),
        (
            direct.main,
            "python -m tools.proofs.snapshot.direct",
            f"--seed {SEED} --rows 12345678 --batches 1234567 --version 11.8 --chunk-rows 1234567 --connections 3",
        ),
    ],
)
def test_the_command_of_a_failure_is_the_run_that_failed(
    main: Callable[[list[str]], object], program: str, given: str, runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    again = repeated(main, given.split(), capsys)
    words = shlex.split(again)
    assert words[: len(program.split())] == program.split()
    assert repeated(main, words[len(program.split()) :], capsys) == again
    first, second = runs.wanted
    assert first == second
    numbers = [word for word in given.split() if word.isdigit()]
    assert set(numbers) <= {*words, *(str(int(float(word))) for word in words if re.fullmatch(r"\d+\.0", word))}


@pytest.mark.parametrize(
    ("program", "name", "main"),
    [
        ("scripts/prove exactly-once", "prove", exactly_once.main),
        ("scripts/prove audit", "AuditProof", audit_proof.main),
    ],
)
def test_a_proof_without_a_class_of_its_own_says_it_too(
    program: str,
    name: str,
    main: Callable[[list[str]], object],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    module: Any = exactly_once if name == "prove" else audit_proof
    monkeypatch.setattr(module, name, _raise)
    monkeypatch.setattr(audit_proof, "open_session", lambda _: None)
    monkeypatch.setattr(audit_proof, "Bench", lambda *_: None)
    monkeypatch.setattr(audit_proof, "delta_settings", dict)
    again = repeated(main, ["--version", VERSION, "--seed", str(SEED)], capsys)
    assert again.startswith(f"{program} ")
    assert {f"--seed {SEED}", f"--version {VERSION}"} <= set(re.findall(r"--\w+ \S+", again))
    assert repeated(main, shlex.split(again)[2:], capsys) == again


def test_the_fuzzer_names_the_case_that_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def run(seed: int, first: int, count: int, step: int, **_: object) -> Outcome:
        asked.append((seed, first, count))
        return Outcome("it failed", 1234567, 0, "")

    def again(*arguments: str) -> list[str]:
        with pytest.raises(SystemExit):
            fuzz.main.main(arguments)
        return shlex.split(re.findall(r"^repeat: (.*)$", capsys.readouterr().out, re.MULTILINE)[0])

    monkeypatch.setattr(fuzz, "run", run)
    words = again("--seed", str(SEED), "--step", "3")
    assert words[:2] == ["scripts/prove", "fuzz"]
    again(*words[2:])
    assert asked == [(SEED, 0, 1_000_000), (SEED, 3 * 1234567, 1)]


VALUES = st.integers() | st.floats(allow_nan=False) | st.text()


@given(st.dictionaries(st.sampled_from(["seed", "kill_at", "minutes"]), VALUES))
def test_each_value_is_one_word_that_reads_as_the_same(values: dict[str, Any]) -> None:
    words = shlex.split(repeat.command("scripts/prove it", left_out=None, **values))
    assert words[:2] == ["scripts/prove", "it"]
    assert words[2::2] == [f"--{name.replace('_', '-')}" for name in values]
    for word, value in zip(words[3::2], values.values(), strict=True):
        assert type(value)(word) == value
