"""The option table: every documented option is accepted, everything else is refused by name, secrets stay secret."""

from __future__ import annotations

import logging
import pickle
import re

import pytest

from replica.errors import ConfigError
from replica.options.config import OPTIONS as REPLICA_OPTIONS
from replica.protocol.gtid import GtidPosition
from streaming_source.options import source_options
from streaming_source.options.source_options import (
    OPTIONS,
    SECRETS,
    SourceOptions,
    file_options,
    names_files,
    plain_options,
)

BASE = {"user": "repl", "table": "shop.orders"}


def _parse(**more: str) -> SourceOptions:
    return SourceOptions.parse({**BASE, **more})


def test_names_may_come_in_lower_case_as_spark_sends_them() -> None:
    options = _parse(maxbytespertrigger="2m", ROWSHAPE="flat", relaymaxfilebytes="1g")
    assert (options.max_bytes_per_trigger, options.row_shape) == (2 << 20, "flat")
    assert options.replica.relay_max_file_bytes == 1 << 30


def test_defaults_are_what_the_table_says() -> None:
    options = _parse()
    assert (options.starting_position, options.max_bytes_per_trigger, options.transport) == (None, 64 << 20, "auto")
    assert options.max_rows_per_trigger is None
    by_name = {option.name: option for option in OPTIONS}
    assert by_name["maxBytesPerTrigger"].default == "64m"
    assert by_name["port"].default == "3306"


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_option_has_help_and_a_parser(option: object) -> None:
    assert option.help  # type: ignore[attr-defined]
    with pytest.raises(ConfigError):
        # No option takes this: not even free text, because these two exclude each other or the value is out of range.
        _parse(**{option.name: "\0", "tables": "a.b"})  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("tabel", "table"),
        ("usr", "user"),
        ("maxBytesPerTriger", "maxBytesPerTrigger"),
        ("startPosition", "startingPosition"),
    ],
)
def test_an_unknown_option_names_the_nearest_known_one(wrong: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown option '{wrong}'.*Did you mean {meant}\\?"):
        _parse(**{wrong: "x"})


def test_what_the_catalog_adds_for_a_table_is_left_out() -> None:
    own = {"host": "db1", "user": "repl", "table": "d.t", "relaymaxbytes": "64m"}
    catalog = {"provider": "mariadb-binlog", "owner": "root", "comment": "x", "a": "b", "location": "file:/w"}
    given = own | {f"option.{name}": value for name, value in own.items()} | catalog
    assert plain_options(given, own) == own
    options = SourceOptions.parse(given | {"table": "d.other"})  # a query over the table says otherwise
    assert options.table == ("d", "other")
    with pytest.raises(ConfigError, match=r"unknown option 'hots'.*Did you mean host\?"):
        SourceOptions.parse(given | {"option.hots": "db1", "hots": "db1"})
    with pytest.raises(ConfigError, match="unknown option 'owner'"):
        SourceOptions.parse(own | {"owner": "root"})
    files = {
        "option.table": "d.t",
        "table": "d.t",
        "path": "file:/w/bin.*",
        "location": "file:/w/bin.*",
        "owner": "root",
    }
    assert names_files(files)
    assert file_options(files).path == ("/w/bin.*",)
    assert names_files({"option.table": "d.t", "option.path": "/w"})


def test_without_any_option_the_message_knows_tables_of_the_catalog() -> None:
    with pytest.raises(ConfigError, match=r"no option is given.*CREATE TABLE … USING.*WITH \(host="):
        SourceOptions.parse({})


def test_an_unknown_option_without_a_neighbour_lists_all() -> None:
    with pytest.raises(ConfigError, match="Known options: table, tables"):
        _parse(zzzzqqqq="x")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"maxBytesPerTrigger": "much"}, "maxBytesPerTrigger='much' is not a size"),
        ({"maxBytesPerTrigger": "0"}, "is not a size"),
        ({"maxRowsPerTrigger": "0"}, "is outside 1 to"),
        ({"maxRowsPerTrigger": "many"}, "is not a whole number"),
        ({"maxTransactionsPerTrigger": "0"}, "is outside 1 to"),
        ({"minRowsPerTrigger": "9", "maxRowsPerTrigger": "8"}, "a batch would never be large enough"),
        ({"maxTriggerDelay": "soon"}, "is not a time"),
        ({"splitLargeTransactions": "never"}, "is neither true nor false"),
        ({"rowShape": "square"}, "is not one of envelope, flat"),
        ({"includeSql": "perhaps"}, "is neither true nor false"),
        ({"startingPosition": "yesterday"}, "is neither latest nor earliest nor a time nor a GTID position"),
        ({"startingPosition": "0-1-5,0-2-6"}, "conflict"),
        ({"startingPosition": "bin.000007:4711"}, "binlog file .*mariadb-replica position --file-pos bin.000007:4711`"),
        ({"startingPosition": '{"v": 1, "gtid": "0-1-5"}'}, "the GTID position in it is 0-1-5: give only that"),
        ({"endingPosition": "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7"}, "GTID set of MySQL.*replica position"),
        ({"startingPosition": " "}, "is empty; earliest"),
        ({"table": "orders"}, "is not of the form database.table"),
        ({"table": "shop.*"}, "tables takes patterns"),
        ({"tables": "shop.*"}, "table and tables exclude each other"),
        ({"port": "99999"}, "port"),
        ({"password": "a", "passwordFile": "b"}, "exclude each other"),
    ],
)
def test_a_bad_value_is_refused_by_name(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _parse(**given)


def test_one_of_table_and_tables_is_required_and_flat_needs_table() -> None:
    with pytest.raises(ConfigError, match="no table is selected"):
        SourceOptions.parse({"user": "repl"})
    with pytest.raises(ConfigError, match="rowShape=flat needs table"):
        SourceOptions.parse({"user": "repl", "tables": "shop.*", "rowShape": "flat"})
    with pytest.raises(ConfigError, match="option user is missing"):
        SourceOptions.parse({"table": "a.b"})
    with pytest.raises(ConfigError, match=r"option user is missing.*set relayDir alone"):
        SourceOptions.parse({"table": "a.b", "relayDir": "/relay", "host": "db1"})
    with pytest.raises(ConfigError, match="holds 'b'"):
        SourceOptions.parse({"user": "repl", "tables": "a.*,b"})


def test_starting_position_is_made_canonical() -> None:
    assert _parse(startingPosition=" 1-2-9, 0-1-4711 ").starting_position == GtidPosition.parse("0-1-4711,1-2-9")
    assert _parse(startingPosition="EARLIEST").starting_position == "earliest"


def test_a_secret_is_in_no_repr_and_no_message() -> None:
    assert {"password"} == SECRETS
    options = _parse(password="hunter2")
    assert "hunter2" not in repr(options)
    for given in ({"password": "hunter2", "port": "x"}, {"password": "hunter2", "passwordFile": "/f"}):
        with pytest.raises(ConfigError) as caught:
            _parse(**given)
        assert "hunter2" not in str(caught.value)
        assert "hunter2" not in repr(caught.value)


def test_every_parse_draws_its_own_server_id_unless_one_is_set() -> None:
    assert _parse().replica.server_id != _parse().replica.server_id
    assert _parse(serverId="77").replica.server_id == 77


def test_every_option_of_the_replica_can_be_given_but_for_the_three_that_are_others_here() -> None:
    reachable = {option.field for option in OPTIONS if option.replica}
    assert set(REPLICA_OPTIONS) - reachable == {"start", "annotate", "gtid_strict_mode"}
    assert _parse().replica.gtid_strict_mode
    assert not _parse(gtidStrictMode="false").replica.gtid_strict_mode
    assert _parse(includeSql="true").replica.annotate


def test_patterns_and_server_are_what_the_user_wrote() -> None:
    assert _parse().patterns == ("shop.orders",)
    assert SourceOptions.parse({"user": "u", "tables": "a.*, b.c"}).patterns == ("a.*", "b.c")
    assert _parse(host="db1,db2:3307").server == "db1:3306,db2:3307"


def test_options_pickle() -> None:
    options = _parse(password="hunter2")
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301


def test_a_relay_dir_alone_names_no_server() -> None:
    options = SourceOptions.parse(
        {"table": "a.b", "relayDir": "file:///relay", "readerName": "x", "daemonTimeout": "2m"}
    )
    assert (options.replica, options.server, str(options.relay_dir)) == (None, "", "/relay")
    assert (options.reader_name, options.daemon_timeout_s) == ("x", 120)
    with pytest.raises(ConfigError, match="no server is named"):
        _ = options.connection
    assert str(_parse(relayDir="/relay").relay_dir) == "/relay"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("readerName", "../x"),
        ("readerName", ""),
        ("daemonTimeout", "0s"),
        ("daemonTimeout", "soon"),
        ("relayDir", "s3://b/x"),
    ],
)
def test_options_beside_a_daemon_are_checked(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        _parse(**{name: value})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"semiSync": "perhaps"}, "option semiSync: is neither true nor false"),
        ({"relayMaxBytes": "lots"}, "option relayMaxBytes"),
        ({"defaultsFile": "/nowhere/tls_ca.cnf"}, "/nowhere/tls_ca.cnf"),
    ],
    ids=["a truth", "a size", "a path stays as it is"],
)
def test_what_the_replica_refuses_is_named_as_users_of_spark_write_it(given: dict[str, str], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SourceOptions.parse({"user": "u", "table": "a.b", **given})
    assert expected in str(caught.value)
    assert not re.search(r"(?<!/)\b(semi_sync|relay_max_bytes|tls_ca)\b", str(caught.value))


def test_initial_is_a_start_of_its_own_behind_which_the_changes_start_at_the_latest() -> None:
    options = _parse(startingPosition="Initial", snapshotConnections="4", snapshotHost="db2", port="3310")
    assert (options.initial, options.stream_start, options.starting_position) == (True, "latest", "initial")
    assert (options.snapshot_connections, options.snapshot_chunk_rows, options.snapshot_rows_per_second) == (
        4,
        100_000,
        None,
    )
    assert str(options.snapshot_endpoint) == "db2:3310"
    assert str(_parse(snapshotHost="[::1]:3307").snapshot_endpoint) == "[::1]:3307"
    plain = _parse(startingPosition="0-1-5")
    assert (plain.initial, plain.stream_start, plain.snapshot_endpoint) == (False, GtidPosition.parse("0-1-5"), None)
    assert _parse().stream_start is None


@pytest.mark.parametrize("value", ["a host", "db2:0", "db2:port", "u:p@db2"])
def test_a_host_to_read_tables_from_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=r"option snapshotHost=.* is not a host"):
        _parse(snapshotHost=value)


def test_tables_to_read_again_have_a_word_behind_them() -> None:
    again = _parse(resnapshot="shop.orders,shop.*_log@of monday").resnapshot
    assert again is not None
    assert (again.patterns, again.word) == (("shop.orders", "shop.*_log"), "of monday")
    for wrong in ("shop.orders", "@monday", "shop.orders@", "orders@monday"):
        with pytest.raises(ConfigError, match="resnapshot"):
            _parse(resnapshot=wrong)
    with pytest.raises(ConfigError, match="resnapshot reads the tables themselves, and no server is named"):
        SourceOptions.parse({"table": "shop.orders", "relayDir": "/relay", "resnapshot": "shop.orders@1"})


def test_former_names_of_options_work_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    source_options._warn_of_former_name.cache_clear()
    with caplog.at_level(logging.WARNING, logger=source_options.__name__):
        for _ in range(2):
            assert _parse(snapshotAgain="shop.orders@x").resnapshot == _parse(resnapshot="shop.orders@x").resnapshot
    assert caplog.messages == ["option snapshotAgain is now called resnapshot; the former name still works"]
    with pytest.raises(ConfigError, match="the options SNAPSHOTAGAIN and resnapshot are one"):
        _parse(SNAPSHOTAGAIN="shop.orders@monday", resnapshot="shop.orders@monday")
    assert set(source_options.FORMER_NAMES.values()) <= {option.name for option in source_options.OPTIONS}


def test_initial_needs_a_server_and_positions_that_name_one_place() -> None:
    with pytest.raises(ConfigError, match=r"no server is named.*Set host and user beside relayDir"):
        SourceOptions.parse({"table": "shop.orders", "relayDir": "/relay", "startingPosition": "initial"})
    with pytest.raises(ConfigError, match="needs gtidStrictMode"):
        _parse(startingPosition="initial", gtidStrictMode="false")
