"""scripts/test-all: its steps hold everything, its record is of the code, and a release is refused without it."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.installation import installations
from tests.kit.some import some
from tools.fuzz.__main__ import main as fuzz
from tools.proofs import audit_proof, cluster_proof, exactly_once
from tools.proofs.full_run import __main__ as program
from tools.proofs.full_run.record import FAILED, LEFT_OUT, PASSED, RECORD, Outcome, Record, gaps, head, read, write
from tools.proofs.full_run.run import LOGS, ChangedCodeError, FullRun, table
from tools.proofs.full_run.steps import LEFT_OUT_BY_THE_QUICK_TESTS, SEED, STEPS, Step
from tools.proofs.snapshot import __main__ as snapshot
from tools.proofs.soak import __main__ as soak

if TYPE_CHECKING:
    from collections.abc import Callable

PROJECT = Path(__file__).resolve().parents[2]
COMMANDS = [command for step in STEPS for command in (step.command, step.short)]


# -- the steps hold everything -------------------------------------------------------------------------------------


def cases(script: str) -> set[str]:
    """The first words that a script takes."""
    text = (PROJECT / "scripts" / script).read_text(encoding="utf-8")
    found = re.findall(r"^ *(?:case \$\{1:-\} in )?((?:[a-z-]+ \| )*[a-z-]+)\) ", text, re.MULTILINE)
    return {word for line in found for word in line.split(" | ")}


@pytest.mark.parametrize("script", ["prove", "soak"])
def test_every_proof_and_every_soak_has_a_step_and_a_short_form(script: str) -> None:
    wanted = cases(script)
    assert len(wanted) == {"prove": 5, "soak": 4}[script], wanted
    for form in ("command", "short"):
        called = {
            getattr(step, form).split()[1] for step in STEPS if getattr(step, form).startswith(f"scripts/{script} ")
        }
        assert called == wanted


def test_every_folder_of_tests_has_a_step() -> None:
    folders = {path.relative_to(PROJECT / "tests").parts[0] for path in (PROJECT / "tests").rglob("test_*.py")}
    slow = {step.name.removeprefix("slow-") for step in STEPS if step.name.startswith("slow-")}
    assert folders - slow == {"containers", "rooms"}
    assert {"containers", "rooms"} <= {step.name for step in STEPS}
    for step in STEPS:
        if step.name.startswith("slow-"):
            assert step.command.endswith(f" tests/{step.name.removeprefix('slow-')}")


def test_each_turn_has_each_test_on_one_server_and_all_turns_have_it_on_all() -> None:
    file = "tests/mirroring/values/test_rules.py"
    versions, turns = list(installations()), []
    for turn in range(len(versions)):
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", f"--turn={turn}", file]
        listed = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout
        turns.append([line for line in listed.splitlines() if line.startswith(file)])
    tests = {line.partition("[")[0] for line in turns[0]}
    of_a_version = {line.partition("[")[0] for line in turns[0] if line.endswith("]")}
    assert of_a_version
    assert [len(turn) for turn in turns] == [len(tests)] * len(versions)
    assert {line for turn in turns for line in turn} == (tests - of_a_version) | {
        f"{test}[{version}]" for test in of_a_version for version in versions
    }


def test_every_mark_that_the_quick_tests_leave_out_has_a_step() -> None:
    quick = (PROJECT / "scripts" / "test").read_text(encoding="utf-8")
    rooms = (PROJECT / "scripts" / "test-rooms").read_text(encoding="utf-8")
    marks = " ".join(re.findall(r'^ *marks="(.*)"$', quick, re.MULTILINE))
    assert set(some(re.findall(r"not (\w+)", marks))) <= set(LEFT_OUT_BY_THE_QUICK_TESTS)
    assert "-m room" in rooms
    assert any(command.startswith("pytest -m container ") for command in COMMANDS)


def test_every_name_is_there_once() -> None:
    names = [step.name for step in STEPS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_one_that_its_program_takes(command: str) -> None:
    words = shlex.split(command.replace(SEED, "20261129"))
    if words[0] == "pytest":
        assert (PROJECT / words[-1]).exists(), words[-1]
        return
    assert os.access(PROJECT / words[0], os.X_OK)
    parse: dict[tuple[str, str], Callable[[list[str]], object]] = {
        ("scripts/prove", "exactly-once"): exactly_once.parser().parse_args,
        ("scripts/prove", "audit"): audit_proof.parser().parse_args,
        ("scripts/prove", "cluster"): cluster_proof.parser().parse_args,
        ("scripts/prove", "snapshot"): snapshot.parser().parse_args,
        ("scripts/prove", "fuzz"): lambda arguments: fuzz.make_context("fuzz", arguments),
    }
    if words[0] == "scripts/soak":
        soak.parser().parse_args(words[1:])
    elif words[0] == "scripts/prove":
        parse[words[0], words[1]](words[2:])


# -- the record ----------------------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with code, a document and the environment that steps are run in."""
    for name, text in {
        "replica/code.py": "1",
        "docs/page.html": "1",
        "README.md": "1",
        "scripts/environment": "",
        ".gitignore": ".cache\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "tests").mkdir()
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(project: Path, *arguments: str) -> None:
    who = ("-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", project, *who, *arguments], check=True, capture_output=True)


def commit(project: Path) -> str:
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "--allow-empty", "--message", "a step")
    return head(project)


def outcome(result: str = PASSED) -> Outcome:
    return Outcome(result, "2026-11-29", 1.5, 'scripts/test -k "ä"', failures=2 if result == FAILED else 0)


def test_a_record_is_read_as_it_was_written(project: Path) -> None:
    record = Record("1" * 40, {"test": outcome(), "rooms": outcome(LEFT_OUT), "soak-daemon": outcome(FAILED)})
    write(project, record)
    assert read(project) == record


def test_the_record_of_this_project_can_be_read() -> None:
    record = read(PROJECT)
    assert record is not None
    assert re.fullmatch("[0-9a-f]{40}", record.commit)
    assert not re.search(r"(?<![\w.])/(work|home|root|tmp)/", (PROJECT / RECORD).read_text(encoding="utf-8"))


def test_only_a_whole_record_of_this_code_is_without_gaps(project: Path) -> None:
    assert gaps(project, ["one"]) == [f"there is no {RECORD}"]
    write(project, Record(head(project), {"one": outcome(), "two": outcome(LEFT_OUT)}))
    assert gaps(project, ["one", "two"]) == []
    assert gaps(project, ["one", "two", "three"]) == ["three was not run"]
    write(project, Record(head(project), {"one": outcome(FAILED)}))
    assert gaps(project, ["one"]) == ["one failed"]
    write(project, Record("1" * 40, {"one": outcome()}))
    assert gaps(project, ["one"]) == [f"its commit {'1' * 40} is not in this repository"]


@pytest.mark.parametrize("name", ["README.md", "docs/page.html", "docs/new.svg", "CHANGELOG.md", RECORD])
def test_a_document_may_change_after_the_run(project: Path, name: str) -> None:
    write(project, Record(head(project), {"one": outcome()}))
    (project / name).touch()
    if name != RECORD:
        (project / name).write_text("2")
    assert gaps(project, ["one"]) == []
    commit(project)
    assert gaps(project, ["one"]) == []


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("name", ["replica/code.py", "tests/unit/test_new.py", "scripts/test", "pyproject.toml"])
def test_code_may_not(project: Path, name: str, committed: bool) -> None:  # noqa: FBT001
    at = head(project)
    write(project, Record(at, {"one": outcome()}))
    (project / name).parent.mkdir(exist_ok=True, parents=True)
    (project / name).write_text("2")
    if committed:
        commit(project)
    assert gaps(project, ["one"]) == [f"changed since its commit {at[:12]}: {name}"]


def test_code_that_is_moved_or_removed_is_changed(project: Path) -> None:
    at = head(project)
    write(project, Record(at, {"one": outcome()}))
    git(project, "mv", "replica/code.py", "docs/code.py")
    commit(project)
    assert gaps(project, ["one"]) == [f"changed since its commit {at[:12]}: replica/code.py"]


# -- the run -------------------------------------------------------------------------------------------------------


def steps(*commands: str) -> list[Step]:
    return [Step(f"step{number}", command, f"echo short{number}", 1) for number, command in enumerate(commands)]


def run(project: Path, some: list[Step], *, short: bool = False) -> tuple[bool, Record]:
    one = FullRun(project, short=short, say=print)
    return one.run(some if short else one.due(some)), one.record


def results(record: Record | None) -> dict[str, str]:
    return {} if record is None else {name: one.result for name, one in record.steps.items()}


def test_a_failure_ends_no_other_step_and_each_has_its_log(project: Path) -> None:
    good, record = run(project, steps(f"echo one {SEED}", "echo two; exit 3", "echo three"))
    assert not good
    assert results(record) == {"step0": PASSED, "step1": FAILED, "step2": PASSED}
    assert read(project) == record
    assert record.steps["step1"].why == "(exit code 3)"
    assert SEED not in record.steps["step0"].command
    assert (project / LOGS / "step0.log").read_text() == record.steps["step0"].command.removeprefix("echo ") + "\n"
    assert (project / LOGS / "step1.log").read_text() == "two\n"
    assert [line.split()[:2] for line in table(record, steps("", "")).splitlines()] == [
        ["step0", PASSED],
        ["step1", FAILED],
    ]
    assert str(project) not in (project / RECORD).read_text()


def test_a_second_run_goes_on_with_what_did_not_pass(project: Path) -> None:
    count = "echo x >>.cache/ran; exit $(($(wc -l <.cache/ran) % 2))"
    some = steps("echo first >>.cache/first", count)
    assert run(project, some)[0] is False
    (project / "README.md").write_text("a document in between")
    commit(project)
    good, record = run(project, some)
    assert good
    assert (project / ".cache" / "first").read_text() == "first\n"
    assert record.steps["step1"].failures == 1
    (project / "replica" / "code.py").write_text("2")
    commit(project)
    assert FullRun(project, short=False, say=print).record == Record(head(project))


def test_no_run_begins_or_counts_on_code_that_is_in_no_commit(project: Path) -> None:
    with pytest.raises(ChangedCodeError, match=r"while step0 ran"):
        run(project, steps("echo 2 >replica/code.py", "touch .cache/never"))
    assert read(project) is None
    assert not (project / ".cache" / "never").exists()
    with pytest.raises(ChangedCodeError, match=r"commit first.*replica/code\.py"):
        run(project, steps("echo"))


def test_a_short_run_leaves_no_record(project: Path) -> None:
    (project / "replica" / "code.py").write_text("2")
    assert run(project, steps("exit 1"), short=True)[0]
    assert read(project) is None
    assert (project / LOGS / "step0.log").read_text() == "short0\n"


def test_what_a_machine_cannot_run_is_left_out_with_the_reason(project: Path) -> None:
    good, record = run(project, [Step("rooms", "exit 1", "", 1, lambda: "not root")])
    assert good
    assert (record.steps["rooms"].result, record.steps["rooms"].why) == (LEFT_OUT, "not root")
    assert gaps(project, ["rooms"]) == []


def test_a_step_that_hangs_is_ended_with_its_processes(project: Path) -> None:
    good, record = run(project, [Step("hangs", "sleep 1234 & echo $! >.cache/pid; wait", "", 1 / 3600)])
    assert not good
    assert record.steps["hangs"].why.startswith("(longer than")
    number = int((project / ".cache" / "pid").read_text())
    status = Path(f"/proc/{number}/stat")
    assert not status.exists() or status.read_text().split()[2] == "Z"


def test_an_interrupted_run_keeps_what_passed(project: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tools.proofs.full_run import __main__ as program\n"
        "from tools.proofs.full_run.steps import Step\n"
        "program.PROJECT = Path(sys.argv[1])\n"
        "program.STEPS = (Step('quick', 'true', '', 1), Step('long', 'sleep 1234', '', 1))\n"
        "sys.exit(program.main([]))"
    )
    with subprocess.Popen([sys.executable, "-c", code, project], cwd=PROJECT, stderr=subprocess.PIPE, text=True) as one:
        end = time.monotonic() + 60
        while not (project / LOGS / "long.log").exists():
            assert time.monotonic() < end
            assert one.poll() is None
            time.sleep(0.05)
        one.send_signal(signal.SIGTERM)
        assert "call it again" in one.communicate()[1]
    assert one.returncode == 130
    assert results(read(project)) == {"quick": PASSED}


def test_the_program_shows_and_checks(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "PROJECT", project)
    monkeypatch.setattr(program, "STEPS", tuple(steps("true", "exit 1")))
    assert program.main(["--check"]) == 1
    assert program.main(["--only", "step0"]) == 0
    assert f"{RECORD}: step1 was not run" in capsys.readouterr().out
    assert program.main([]) == 1
    assert program.main(["--list"]) == 0
    assert re.search(r"^step1 +failed .*exit code 1", capsys.readouterr().out, re.MULTILINE)
    assert program.main(["--check"]) == 1
    monkeypatch.setattr(program, "STEPS", tuple(steps("true", "true")))
    assert program.main([]) == 0
    assert program.main(["--check"]) == 0
