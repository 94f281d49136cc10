from __future__ import annotations

from replica.daemon import run
from replica.errors import PositionLostError
from tests.unit.daemon.records import record


def test_what_ended_it_is_told_with_its_exit_code_and_a_bug_without_its_words() -> None:
    failure = run._failure(PositionLostError("It is gone.", hint="Take a snapshot."))
    assert (failure.error, failure.message, failure.exit_code) == ("PositionLostError", "It is gone.", 32)
    bug = run._failure(ValueError("with a secret in it"))
    assert (bug.error, bug.exit_code) == ("ValueError", 1)
    assert "secret" not in bug.message + bug.hint


def test_one_line_for_systemctl() -> None:
    assert run._line(record()) == "streaming, 0 s behind, at 0-1-99,3-1-5"
    unknown = record(state="connecting", behind={"seconds": None}, position={"gtid": ""})
    assert run._line(unknown) == "connecting, unknown behind, at the beginning"
