from __future__ import annotations

import dataclasses

import pytest

from replica.errors import AuthenticationError, PrerequisiteError, ServerError
from replica.handshake.primary.server import Findings, ServerInfo, check, inspect_server, plain_version, refusal, uid_of
from tests.unit.handshake.steps import converse

VARIABLES = [
    ("binlog_checksum", "CRC32"),
    ("binlog_format", "ROW"),
    ("binlog_row_image", "FULL"),
    ("binlog_row_metadata", "FULL"),
    ("gtid_domain_id", "0"),
    ("log_bin", "ON"),
    ("server_id", "1"),
    ("version", "10.11.19-MariaDB-log"),
    ("version_comment", "Debian 12"),
]
ANSWERS = {"SHOW GLOBAL VARIABLES": VARIABLES, "SELECT CURRENT_USER": [("re'pl@%",)]}
GOOD = ServerInfo(
    version="10.11.19-MariaDB-log",
    version_comment="Debian 12",
    server_id=1,
    account="re'pl@%",
    may_replicate=True,
    log_bin=True,
    binlog_format="ROW",
    binlog_row_image="FULL",
    binlog_row_metadata="FULL",
    binlog_checksum="CRC32",
    gtid_domain_id=0,
    uid=uid_of({}),
)


def changed(**fields: object) -> ServerInfo:
    return dataclasses.replace(GOOD, **fields)  # type: ignore[arg-type]


def test_inspection_reads_the_settings_and_probes_the_privilege() -> None:
    said, info = converse(inspect_server(77), ANSWERS)
    assert info == GOOD
    assert said[-1] == bytes.fromhex("15 4d000000 000000 0000 00000000 00000000")


def test_a_refused_registration_is_a_missing_privilege_and_no_end() -> None:
    _, info = converse(inspect_server(77), {**ANSWERS, "15": ServerError("Access denied", code=1045)})
    assert not info.may_replicate
    with pytest.raises(ServerError, match="out of memory"):
        converse(inspect_server(77), {**ANSWERS, "15": ServerError("out of memory", code=1037)})


def test_a_server_without_gtid_domains_is_not_mariadb_and_is_not_registered_with() -> None:
    mysql = [(name, value) for name, value in VARIABLES if name != "gtid_domain_id"]
    mysql[-2:] = [("version", "8.4.3"), ("version_comment", "MySQL Community Server")]
    said, info = converse(inspect_server(77), {**ANSWERS, "SHOW GLOBAL VARIABLES": mysql})
    assert all(isinstance(one, str) for one in said)
    error = refusal(check(info, 77), info, "db1:3306")
    assert isinstance(error, PrerequisiteError)
    assert "8.4.3 (MySQL Community Server)" in str(error)
    assert "MariaDB 8.4.3" not in str(error)


def test_a_good_server_passes_without_a_word() -> None:
    assert check(GOOD, 77) == Findings((), ())
    assert refusal(check(GOOD, 77), GOOD, "db1") is None


@pytest.mark.parametrize(
    ("field", "value", "what", "fix"),
    [
        ("log_bin", False, "log_bin", "log_bin=binlog"),
        ("binlog_format", "STATEMENT", "STATEMENT", "SET GLOBAL binlog_format = 'ROW'"),
        ("binlog_format", "MIXED", "MIXED", "SET GLOBAL binlog_format = 'ROW'"),
        ("server_id", 77, "77", "its own server_id"),
    ],
)
def test_each_unmet_prerequisite_names_its_fix(field: str, value: object, what: str, fix: str) -> None:
    info = changed(**{field: value})
    error = refusal(check(info, 77), info, "db1:3306")
    assert isinstance(error, PrerequisiteError)
    assert "db1:3306" in error.message
    assert what in error.message
    assert fix in error.hint


def test_a_missing_privilege_alone_is_an_authentication_error_with_the_grant() -> None:
    info = changed(may_replicate=False)
    error = refusal(check(info, 77), info, "db1")
    assert isinstance(error, AuthenticationError)
    assert error.code == 1045
    assert "GRANT REPLICATION SLAVE ON *.* TO 're''pl'@'%'" in error.hint


def test_all_unmet_prerequisites_are_told_at_once() -> None:
    info = changed(log_bin=False, binlog_format="MIXED", may_replicate=False, server_id=77)
    error = refusal(check(info, 77), info, "db1")
    assert isinstance(error, PrerequisiteError)
    for number in "(1)", "(2)", "(3)", "(4)":
        assert number in error.message
        assert number in error.hint


@pytest.mark.parametrize(
    ("field", "value", "word"),
    [
        ("binlog_row_image", "MINIMAL", "MINIMAL"),
        ("binlog_row_metadata", "NO_LOG", "NO_LOG"),
        ("binlog_row_metadata", None, "binlog_row_metadata"),
        ("binlog_checksum", "NONE", "binlog_checksum"),
        ("version", "10.4.2-MariaDB", "10.4.2"),
    ],
)
def test_what_only_makes_life_harder_is_a_warning(field: str, value: object, word: str) -> None:
    info = changed(**{field: value})
    findings = check(info, 77)
    assert findings.unmet == ()
    (warning,) = findings.warnings
    assert word in warning.what
    assert warning.fix


def test_the_prefix_of_old_greetings_is_no_version() -> None:
    assert plain_version("5.5.5-10.11.19-MariaDB") == "10.11.19-MariaDB"
    assert plain_version("11.8.6-MariaDB") == "11.8.6-MariaDB"
    assert changed(version="11.8.6-MariaDB from Debian").version_number == (11, 8)
