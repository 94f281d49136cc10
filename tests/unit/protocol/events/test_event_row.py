"""The table of event types: every row is whole, names a place it comes from, and a decoder that reads it."""

from __future__ import annotations

import re

import pytest

from replica.protocol.constants import BOTH, MARIADB, MYSQL, ROLES, EventRow, EventType, Role
from replica.protocol.events.decode import DECODERS

# A server's file and function or class with its version, or a page of the documentation.
SOURCE = re.compile(
    r"(MariaDB 1\d\.\d+\.\d+, sql/\w+\.(cc|h)|MySQL \d\.\d, libs/mysql/binlog/event/\w+\.h|MariaDB's documentation)"
    r", \w+"
)


@pytest.mark.parametrize("row", EventType, ids=lambda row: row.name)
def test_every_row_names_its_source(row: EventType) -> None:
    assert SOURCE.match(row.source), row.source


@pytest.mark.parametrize("row", EventType, ids=lambda row: row.name)
def test_what_may_be_read_has_a_decoder(row: EventType) -> None:
    refused = row.role in (Role.REFUSED, Role.STRANGER)
    assert (int(row) in DECODERS) == (not refused and row is not EventType.FORMAT_DESCRIPTION)
    assert (row.writers == ("", "")) == refused


def test_roles_are_those_of_the_rows_and_strangers_elsewhere() -> None:
    assert len(ROLES) == 256
    for number, role in enumerate(ROLES):
        assert role is (EventType(number).role if number in list(EventType) else Role.STRANGER)


def test_each_role_is_used() -> None:
    assert {row.role for row in EventType} == set(Role)


def test_a_row_is_its_number() -> None:
    class Table(EventRow):
        FIRST = 250, "statement_events.decode_rand", Role.MEMBER, MARIADB, "First_log_event"
        SECOND = 251, "statement_events.decode_rand", Role.MEMBER, MYSQL, "Second_rows_event"
        THIRD = 252, "statement_events.decode_rand", Role.MEMBER, BOTH, "MariaDB's documentation, Third"

    assert (Table.FIRST == 250, Table(250), Table.FIRST.name) == (True, Table.FIRST, "FIRST")
    assert Table.FIRST.source == "MariaDB 10.11.18, sql/log_event.cc, First_log_event"
    assert Table.SECOND.source == "MySQL 8.4, libs/mysql/binlog/event/rows_event.h, Second_rows_event"
    assert Table.THIRD.source == "MariaDB's documentation, Third"
