"""What each session sets, what it reads back, and what it goes on without."""

from __future__ import annotations

import pytest

from replica.errors import PrerequisiteError, ProtocolError, ServerError
from replica.handshake.login.session_settings import NAMES, SETTINGS, SPOKEN, refuse_others, set_session, settle_session
from replica.handshake.registration import Query
from tests.unit.handshake.steps import converse

KEPT = SPOKEN | {one.name: one.shown for one in SETTINGS if one.shown is not None}


def test_the_character_set_comes_first_and_all_is_read_back() -> None:
    said, found = converse(settle_session(), {"SHOW": list(KEPT.items())})
    assert said[:2] == [NAMES, set_session(SETTINGS)]
    assert len(said) == 3
    assert found == KEPT
    refuse_others(found)


def test_every_setting_has_a_reason_and_stands_once() -> None:
    assert len({one.name for one in SETTINGS}) == len(SETTINGS)
    assert all(one.why for one in SETTINGS)


@pytest.mark.parametrize("name", KEPT)
def test_a_session_with_another_setting_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(PrerequisiteError, match=f"{name} is 'other'") as caught:
        refuse_others(KEPT | {name: "other"})
    assert "init_connect" in caught.value.hint
    assert "listens" not in str(caught.value)


def test_what_a_server_does_not_know_is_left_out_but_for_what_it_speaks() -> None:
    refuse_others({name: value for name, value in KEPT.items() if name in SPOKEN})
    with pytest.raises(PrerequisiteError, match="character_set_results"):
        refuse_others({name: value for name, value in KEPT.items() if name != "character_set_results"})
    with pytest.raises(ProtocolError, match="does not report"):
        refuse_others({})


@pytest.mark.parametrize("code", [1193, 1227, 1231, 1238, 1290])
def test_a_variable_that_cannot_be_set_leaves_the_others_to_be_set(code: int) -> None:
    steps, said = settle_session(), []
    step, found = next(steps), None
    refused = ("SET SESSION autocommit = 1, ", "SET SESSION timestamp")
    try:
        while True:
            assert isinstance(step, Query)
            said.append(step.sql)
            if step.sql.startswith(refused):
                step = steps.throw(ServerError("refused", code=code))
            else:
                step = steps.send(list(KEPT.items()) if step.sql.startswith("SHOW") else ())
    except StopIteration as done:
        found = done.value
    assert found == KEPT
    assert said[2:-1] == [set_session((one,)) for one in SETTINGS]


def test_another_error_is_the_answer() -> None:
    with pytest.raises(ServerError, match="down"):
        converse(settle_session(), {"SET SESSION": ServerError("down", code=1105)})
