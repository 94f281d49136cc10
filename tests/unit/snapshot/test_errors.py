"""What an error means for the table that was read, and the name that it gets."""

from __future__ import annotations

import pytest

from replica.errors import (
    AuthenticationError,
    DisconnectedError,
    DiskFullError,
    PrerequisiteError,
    ReplicaError,
    SchemaError,
    ServerError,
    UnsupportedColumnError,
)
from replica.snapshot.errors import (
    BROKEN,
    DENIED,
    HELD,
    MAY_MEND,
    REDEFINED,
    SAME_ERROR,
    SAME_MISFIT,
    TRANSIENT,
    concerns_only_table,
    named,
    needs_new_definition,
    passes,
)

NOTES = ("shop", "notes")


def test_no_error_both_passes_and_is_the_table_s() -> None:
    assert not TRANSIENT.keys() & (DENIED | BROKEN | REDEFINED)
    assert not DENIED & (BROKEN | REDEFINED)


@pytest.mark.parametrize("code", sorted(DENIED | BROKEN - REDEFINED))
def test_what_the_server_says_of_a_table_is_about_that_table_at_once(code: int) -> None:
    error = ServerError("no", code=code)
    assert concerns_only_table(error, 1)
    assert not passes(error)
    assert not needs_new_definition(error, 1)


@pytest.mark.parametrize(
    ("error", "most"),
    [
        *((ServerError("another", code=code), SAME_ERROR) for code in sorted(REDEFINED)),
        (SchemaError("another"), SAME_MISFIT),
    ],
)
def test_another_definition_is_about_the_table_when_reading_it_again_does_not_help(
    error: ReplicaError, most: int
) -> None:
    assert needs_new_definition(error, most - 1)
    assert not concerns_only_table(error, most - 1)
    assert not needs_new_definition(error, most)
    assert concerns_only_table(error, most)


@pytest.mark.parametrize("code", sorted(HELD))
def test_what_should_pass_is_about_the_table_when_it_does_not(code: int) -> None:
    error = ServerError("held", code=code)
    assert passes(error)
    assert not concerns_only_table(error, SAME_ERROR - 1)
    assert concerns_only_table(error, SAME_ERROR)


@pytest.mark.parametrize("error", [PrerequisiteError("no key"), UnsupportedColumnError("a new type")])
def test_what_no_reading_can_mend_is_about_the_table(error: ReplicaError) -> None:
    assert concerns_only_table(error, 1)
    assert not needs_new_definition(error, 1)


@pytest.mark.parametrize(
    "error",
    [
        *(ServerError("passes", code=code) for code in TRANSIENT.keys() - HELD),
        ServerError("out of memory", code=1037),
        ServerError("access denied for user", code=1045),
        DisconnectedError("gone"),
        DiskFullError("full"),
    ],
)
def test_what_a_server_or_a_machine_lacks_is_no_table_s(error: ReplicaError) -> None:
    assert not concerns_only_table(error, 100)
    assert not needs_new_definition(error, 1)


def test_an_error_gets_the_name_once_and_says_what_to_do() -> None:
    denied = named(ServerError("SELECT denied", code=1142, sqlstate="42000"), NOTES)
    assert isinstance(denied, AuthenticationError)
    assert denied.message == "table shop.notes cannot be read: SELECT denied"
    assert (denied.code, denied.sqlstate) == (1142, "42000")
    assert "GRANT SELECT" in denied.hint
    assert named(denied, NOTES) is denied
    crashed = ServerError("it is marked as crashed", code=1194)
    told = named(crashed, NOTES)
    assert (told.message, told.hint) == ("while reading table shop.notes: it is marked as crashed", MAY_MEND)
    assert (crashed.message, crashed.hint) == ("it is marked as crashed", "")
    kept = named(PrerequisiteError("no key", hint="Give it one."), NOTES)
    assert (type(kept), kept.hint) == (PrerequisiteError, "Give it one.")
