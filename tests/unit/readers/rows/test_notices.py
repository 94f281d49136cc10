from __future__ import annotations

import io

from replica.errors import DataLossError, SchemaError
from replica.readers.rows import progress as module
from replica.readers.rows.progress import Notices


def test_each_is_said_once() -> None:
    notices = Notices(io.StringIO())
    notices.say("this")
    notices.say("this")
    assert notices.stream.getvalue() == "mariadb-replica: this\n"  # type: ignore[attr-defined]
    assert notices.exit_code == 0


def test_the_first_that_left_something_out_makes_the_exit_code() -> None:
    notices = Notices(io.StringIO())
    notices.left_out(SchemaError("no table"))
    notices.left_out(DataLossError("no rows"))
    assert notices.exit_code == SchemaError.exit_code


def test_they_are_bounded(monkeypatch: object) -> None:
    notices = Notices(io.StringIO())
    for number in range(module.MAX_NOTICES + 5):
        notices.say(str(number))
    assert notices.stream.getvalue().count("\n") == module.MAX_NOTICES  # type: ignore[attr-defined]
    assert notices.unsaid == 5
    notices.close()
    assert notices.stream.getvalue().splitlines()[-1].endswith("5 more notices were not shown")  # type: ignore[attr-defined]
