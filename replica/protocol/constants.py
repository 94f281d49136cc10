"""Numbers of the binlog protocol, under the server's own names.

A server may add event types, column types and status variables. Read their codes as plain integers and compare them
with these enums. Then the caller decides about an unknown code, and no enum raises a ValueError.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final, NamedTuple, Self

# `EventRow` defines the columns of the table, and `constants.EventType` is the table with one row for each event type.
# All code that depends on the type derives from this table: the decoders (events/decode.py) and the grouping rule
# (groups/groups.py). So do the arrays of the kernels (native/kernel_group.py) and the page docs/events.md.


class Role(IntEnum):
    """Effect of an event on event groups.

    Source: MariaDB 10.11.18, sql/slave.cc, queue_event; sql/log_event.h, is_group_event; sql/log_event.cc,
    read_log_event (unknown types); MySQL 8.4, libs/mysql/binlog/event/binlog_event.h.
    """

    meaning: str

    def __new__(cls, number: int, meaning: str) -> Self:
        role = int.__new__(cls, number)
        role._value_ = number
        role.meaning = meaning
        return role

    STRANGER = 0, "an unknown type, which is skipped only if its header says that it may be ignored"
    REFUSED = 1, "nothing writes it any more; never skipped, because it may hold changes"
    CONTROL = 2, "about the binlog itself: outside of every group, wherever it stands"
    PASSED = 3, "holds no change: allowed anywhere"
    BEGIN = 4, "opens a group, and says whether that is a transaction or a standalone statement"
    MYSQL_BEGIN = 5, "opens a group of MySQL, whose first statement says which of the two it is"
    MEMBER = 6, "part of a group, never its end"
    LOAD = 7, "part of a group that changes rows as a statement (LOAD DATA), never its end"
    END = 8, "ends a transaction"
    STATEMENT = 9, "ends a standalone group; a transaction too, if its whole text is COMMIT or ROLLBACK"
    COMPRESSED_STATEMENT = 10, "ends a standalone group only: the server never compresses COMMIT"
    PAYLOAD = 11, "holds the rest of MySQL's group, its end included"
    LOST = 12, "says that changes are missing: ends a standalone group, stands outside of any other; reading rows stops"


OUTSIDE: Final = frozenset({Role.CONTROL, Role.PASSED, Role.BEGIN, Role.MYSQL_BEGIN, Role.LOST})
"""Roles that may occur outside of a group. Other events may do so only with the IGNORABLE flag in their header."""


class Group(IntEnum):
    """Kind of the event group that is open."""

    NONE = 0
    TRANSACTION = 1
    STANDALONE = 2
    UNDECIDED = 3
    """A group of MySQL before its first statement."""


class Writers(NamedTuple):
    """First version of MariaDB and of MySQL that writes an event.

    "" means never. "read" means read but never written.
    """

    mariadb: str
    mysql: str


BOTH: Final = Writers("all", "all")
MARIADB: Final = Writers("all", "")
MYSQL: Final = Writers("", "all")
SINCE_10_2: Final = Writers("10.2", "")
READ: Final = Writers("read", "")
NOBODY: Final = Writers("", "")

ROWS_DECODER: Final = "rows.rows_event.decode_rows"


class EventRow(IntEnum):
    """An event type as a row: number, decoder ("module.function" of this package), role, writers, source.

    The decoder is a name and not an import, because the decoding modules import these numbers. FORMAT_DESCRIPTION has
    no decoder here, because the other events are decoded with it. `source` is a class of the server's code, or a full
    path.
    """

    decoder: str
    role: Role
    writers: Writers
    source: str

    def __new__(cls, number: int, decoder: str, role: Role, writers: Writers, source: str) -> Self:
        row = int.__new__(cls, number)
        row._value_ = number
        row.decoder, row.role, row.writers, row.source = decoder, role, writers, _whole(source, writers)
        return row

    @property
    def has_rows(self) -> bool:
        """Whether the event is a rows event, of any version, compressed or not."""
        return self.decoder == ROWS_DECODER


def _whole(source: str, writers: Writers) -> str:
    """Return the source with server, version and file before a bare class name."""
    if ", " in source:
        return source
    if writers.mysql and not writers.mariadb:
        file = "rows_event.h" if "ows_" in source else "control_events.h"
        return f"MySQL 8.4, libs/mysql/binlog/event/{file}, {source}"
    return f"MariaDB 10.11.18, sql/log_event.cc, {source}"


BINLOG_MAGIC: Final = b"\xfebin"
HEADER_LENGTH: Final = 19
"""Length in bytes of the header with which every event starts."""
TYPE_AT: Final = 4
SERVER_AT: Final = 5
LENGTH_AT: Final = 9
LOG_POS_AT: Final = 13
FLAGS_AT: Final = 17
"""Byte offsets in the header. The timestamp is at 0."""
CHECKSUM_LENGTH: Final = 4
FIRST_POSITION: Final = len(BINLOG_MAGIC)
"""Offset of the first event in a binlog file."""
MAX_EVENT_BYTES: Final = 1 << 30
"""The server's MAX_MAX_ALLOWED_PACKET. A dump thread never sends a larger event, whatever max_allowed_packet is."""
MAX_COLUMNS: Final = 4096
"""The server's MAX_FIELDS. A table map with more columns is corrupt."""

_ENUM: Final = "MariaDB 10.11.18, sql/log_event.h, Log_event_type"
_HEARTBEAT: Final = "MariaDB 10.11.18, sql/sql_repl.cc, send_heartbeat_event"
_FRAGMENTS: Final = "MariaDB's documentation, Partial_rows_log_event (MDEV-32570)"


class EventType(EventRow):
    """Log_event_type of MariaDB and MySQL. A member holds all facts about its type, see `constants.py`."""

    UNKNOWN = 0, "", Role.STRANGER, NOBODY, _ENUM
    START_V3 = 1, "", Role.REFUSED, NOBODY, _ENUM
    QUERY = 2, "events.statement_events.decode_query", Role.STATEMENT, BOTH, "Query_log_event"
    STOP = 3, "events.file_events.decode_stop", Role.CONTROL, BOTH, "Stop_log_event"
    ROTATE = 4, "events.file_events.decode_rotate", Role.CONTROL, BOTH, "Rotate_log_event"
    INTVAR = 5, "events.statement_events.decode_intvar", Role.MEMBER, BOTH, "Intvar_log_event"
    LOAD = 6, "", Role.REFUSED, NOBODY, _ENUM
    SLAVE = 7, "", Role.REFUSED, NOBODY, _ENUM
    CREATE_FILE = 8, "", Role.REFUSED, NOBODY, _ENUM
    APPEND_BLOCK = 9, "events.statement_events.decode_load_block", Role.MEMBER, BOTH, "Append_block_log_event"
    EXEC_LOAD = 10, "", Role.REFUSED, NOBODY, _ENUM
    DELETE_FILE = 11, "events.statement_events.decode_load_block", Role.MEMBER, BOTH, "Delete_file_log_event"
    NEW_LOAD = 12, "", Role.REFUSED, NOBODY, _ENUM
    RAND = 13, "events.statement_events.decode_rand", Role.MEMBER, BOTH, "Rand_log_event"
    USER_VAR = 14, "events.statement_events.decode_user_var", Role.MEMBER, BOTH, "User_var_log_event"
    FORMAT_DESCRIPTION = 15, "", Role.CONTROL, BOTH, "Format_description_log_event"
    XID = 16, "events.transaction_events.decode_xid", Role.END, BOTH, "Xid_log_event"
    BEGIN_LOAD_QUERY = 17, "events.statement_events.decode_load_block", Role.MEMBER, BOTH, "Begin_load_query_log_event"
    EXECUTE_LOAD_QUERY = (
        18,
        "events.statement_events.decode_execute_load_query",
        Role.LOAD,
        BOTH,
        "Execute_load_query_log_event",
    )
    TABLE_MAP = 19, "rows.table_map.decode_table_map", Role.MEMBER, BOTH, "Table_map_log_event"
    PRE_GA_WRITE_ROWS = 20, "", Role.REFUSED, NOBODY, _ENUM
    PRE_GA_UPDATE_ROWS = 21, "", Role.REFUSED, NOBODY, _ENUM
    PRE_GA_DELETE_ROWS = 22, "", Role.REFUSED, NOBODY, _ENUM
    WRITE_ROWS_V1 = 23, ROWS_DECODER, Role.MEMBER, Writers("all", "to 8.1"), "Rows_log_event"
    UPDATE_ROWS_V1 = 24, ROWS_DECODER, Role.MEMBER, Writers("all", "to 8.1"), "Rows_log_event"
    DELETE_ROWS_V1 = 25, ROWS_DECODER, Role.MEMBER, Writers("all", "to 8.1"), "Rows_log_event"
    INCIDENT = 26, "events.file_events.decode_incident", Role.LOST, BOTH, "Incident_log_event"
    HEARTBEAT = 27, "events.file_events.decode_heartbeat", Role.CONTROL, BOTH, _HEARTBEAT
    IGNORABLE = 28, "events.file_events.decode_unknown", Role.PASSED, MYSQL, "Ignorable_event"
    ROWS_QUERY = 29, "events.statement_events.decode_rows_query", Role.MEMBER, Writers("", "5.6"), "Rows_query_event"
    WRITE_ROWS = 30, ROWS_DECODER, Role.MEMBER, Writers("read", "5.6"), "Rows_log_event"
    UPDATE_ROWS = 31, ROWS_DECODER, Role.MEMBER, Writers("read", "5.6"), "Rows_log_event"
    DELETE_ROWS = 32, ROWS_DECODER, Role.MEMBER, Writers("read", "5.6"), "Rows_log_event"
    GTID_LOG = 33, "mysql.events.decode_mysql_gtid", Role.MYSQL_BEGIN, Writers("", "5.6"), "Gtid_event"
    ANONYMOUS_GTID = 34, "mysql.events.decode_mysql_gtid", Role.MYSQL_BEGIN, Writers("", "5.6"), "Gtid_event"
    PREVIOUS_GTIDS = 35, "mysql.events.decode_previous_gtids", Role.CONTROL, Writers("", "5.6"), "Previous_gtids_event"
    TRANSACTION_CONTEXT = (
        36,
        "events.file_events.decode_unknown",
        Role.PASSED,
        Writers("", "5.7"),
        "Transaction_context_event",
    )
    VIEW_CHANGE = 37, "events.file_events.decode_unknown", Role.PASSED, Writers("", "5.7"), "View_change_event"
    XA_PREPARE = (
        38,
        "events.transaction_events.decode_xa_prepare",
        Role.END,
        Writers("10.5", "5.7"),
        "XA_prepare_log_event",
    )
    PARTIAL_UPDATE_ROWS = 39, ROWS_DECODER, Role.MEMBER, Writers("", "8.0"), "Update_rows_event"
    TRANSACTION_PAYLOAD = (
        40,
        "mysql.events.decode_transaction_payload",
        Role.PAYLOAD,
        Writers("", "8.0.20"),
        "Transaction_payload_event",
    )
    HEARTBEAT_V2 = (
        41,
        "events.file_events.decode_heartbeat_v2",
        Role.CONTROL,
        Writers("", "8.0.26"),
        "Heartbeat_event_v2",
    )
    GTID_TAGGED_LOG = 42, "mysql.events.decode_tagged_gtid", Role.MYSQL_BEGIN, Writers("", "8.3"), "Gtid_event"
    ANNOTATE_ROWS = 160, "events.statement_events.decode_annotate_rows", Role.MEMBER, MARIADB, "Annotate_rows_log_event"
    BINLOG_CHECKPOINT = (
        161,
        "events.file_events.decode_binlog_checkpoint",
        Role.CONTROL,
        MARIADB,
        "Binlog_checkpoint_log_event",
    )
    GTID = 162, "events.transaction_events.decode_gtid", Role.BEGIN, MARIADB, "Gtid_log_event"
    GTID_LIST = 163, "events.transaction_events.decode_gtid_list", Role.CONTROL, MARIADB, "Gtid_list_log_event"
    START_ENCRYPTION = (
        164,
        "events.file_events.decode_start_encryption",
        Role.CONTROL,
        MARIADB,
        "Start_encryption_log_event",
    )
    QUERY_COMPRESSED = (
        165,
        "events.statement_events.decode_query",
        Role.COMPRESSED_STATEMENT,
        SINCE_10_2,
        "Query_compressed_log_event",
    )
    WRITE_ROWS_COMPRESSED_V1 = 166, ROWS_DECODER, Role.MEMBER, SINCE_10_2, "Rows_log_event"
    UPDATE_ROWS_COMPRESSED_V1 = 167, ROWS_DECODER, Role.MEMBER, SINCE_10_2, "Rows_log_event"
    DELETE_ROWS_COMPRESSED_V1 = 168, ROWS_DECODER, Role.MEMBER, SINCE_10_2, "Rows_log_event"
    WRITE_ROWS_COMPRESSED = 169, ROWS_DECODER, Role.MEMBER, READ, "Rows_log_event"
    UPDATE_ROWS_COMPRESSED = 170, ROWS_DECODER, Role.MEMBER, READ, "Rows_log_event"
    DELETE_ROWS_COMPRESSED = 171, ROWS_DECODER, Role.MEMBER, READ, "Rows_log_event"
    PARTIAL_ROW_DATA = (
        172,
        "rows.rows_event.decode_partial_row_data",
        Role.MEMBER,
        Writers("12.3", ""),
        _FRAGMENTS,
    )


_BY_NUMBER: Final = {int(row): row for row in EventType}
ROLES: Final = tuple(_BY_NUMBER[number].role if number in _BY_NUMBER else Role.STRANGER for number in range(256))
"""Role of every event type in event groups, indexed by the type's number (0 to 255)."""


def event_name(event_type: int) -> str:
    """Return the name of an event type with its number, for messages."""
    row = _BY_NUMBER.get(event_type)
    return f"type {event_type}" if row is None else f"{row.name} ({event_type})"


class HeaderFlag(IntFlag):
    """Flags of the event header."""

    BINLOG_IN_USE = 0x1
    """Only FORMAT_DESCRIPTION in a file: the file was not closed. That event's checksum does not cover the flag."""
    THREAD_SPECIFIC = 0x4
    SUPPRESS_USE = 0x8
    ARTIFICIAL = 0x20
    """The event was made for this connection and is not in the primary's binlog. Never resume from its log_pos."""
    RELAY_LOG = 0x40
    IGNORABLE = 0x80
    """A reader that does not know the type may skip the event."""
    NO_FILTER = 0x100
    MTS_ISOLATE = 0x200
    ACCEPT_OWN = 0x4000
    SKIP_REPLICATION = 0x8000


class GtidFlag(IntFlag):
    """Flags of a GTID event (flags2)."""

    STANDALONE = 1
    """One statement follows without a COMMIT, so the group ends with its first QUERY."""
    GROUP_COMMIT_ID = 2
    TRANSACTIONAL = 4
    ALLOW_PARALLEL = 8
    WAITED = 16
    DDL = 32
    PREPARED_XA = 64
    COMPLETED_XA = 128


class GtidExtraFlag(IntFlag):
    """Extra flags of a GTID event (flags_extra, 10.8+)."""

    MULTI_ENGINE = 1
    START_ALTER = 2
    COMMIT_ALTER = 4
    ROLLBACK_ALTER = 8
    THREAD_ID = 16
    """11.5+"""


class GtidListFlag(IntFlag):
    """High four bits of the count word of a GTID_LIST event."""

    UNTIL_REACHED = 1 << 28
    IGN_GTIDS = 1 << 29


class TableMapFlag(IntFlag):
    BIT_LEN_EXACT = 1
    HAS_TRIGGERS = 0x4000


class RowsFlag(IntFlag):
    STMT_END = 1
    """Last rows event of its statement. The table maps of the statement are void after it."""
    NO_FOREIGN_KEY_CHECKS = 2
    RELAXED_UNIQUE_CHECKS = 4
    COMPLETE_ROWS = 8
    NO_CHECK_CONSTRAINT_CHECKS = 0x10


class ColumnType(IntEnum):
    """Column types (enum_field_types of the server).

    ENUM and SET appear as STRING, with the real type in the metadata.
    """

    DECIMAL = 0
    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    NULL = 6
    TIMESTAMP = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    TIME = 11
    DATETIME = 12
    YEAR = 13
    NEWDATE = 14
    VARCHAR = 15
    BIT = 16
    TIMESTAMP2 = 17
    DATETIME2 = 18
    TIME2 = 19
    TYPED_ARRAY = 20
    BLOB_COMPRESSED = 140
    VARCHAR_COMPRESSED = 141
    VECTOR = 242
    JSON = 245
    NEWDECIMAL = 246
    ENUM = 247
    SET = 248
    TINY_BLOB = 249
    MEDIUM_BLOB = 250
    LONG_BLOB = 251
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


class MetadataField(IntEnum):
    """Types of the optional metadata of a table map."""

    SIGNEDNESS = 1
    DEFAULT_CHARSET = 2
    COLUMN_CHARSET = 3
    COLUMN_NAME = 4
    SET_STR_VALUE = 5
    ENUM_STR_VALUE = 6
    GEOMETRY_TYPE = 7
    SIMPLE_PRIMARY_KEY = 8
    PRIMARY_KEY_WITH_PREFIX = 9
    ENUM_AND_SET_DEFAULT_CHARSET = 10
    ENUM_AND_SET_COLUMN_CHARSET = 11
    COLUMN_VISIBILITY = 12
    VECTOR_DIMENSIONALITY = 13


class StatusVar(IntEnum):
    """Status variables of QUERY events: the session state that a statement depends on."""

    FLAGS2 = 0
    SQL_MODE = 1
    CATALOG = 2
    AUTO_INCREMENT = 3
    CHARSET = 4
    TIME_ZONE = 5
    CATALOG_NZ = 6
    LC_TIME_NAMES = 7
    CHARSET_DATABASE = 8
    TABLE_MAP_FOR_UPDATE = 9
    MASTER_DATA_WRITTEN = 10
    INVOKER = 11
    UPDATED_DB_NAMES = 12
    MICROSECONDS = 13
    EXPLICIT_DEFAULTS = 16
    DDL_XID = 17
    DEFAULT_COLLATION_FOR_UTF8MB4 = 18
    SQL_REQUIRE_PRIMARY_KEY = 19
    DEFAULT_TABLE_ENCRYPTION = 20
    HRNOW = 128
    XID = 129
    GTID_FLAGS3 = 130
    CHARACTER_SET_COLLATIONS = 131
    DUMMY = 255


class ChecksumAlgorithm(IntEnum):
    NONE = 0
    CRC32 = 1


class Command(IntEnum):
    """First byte of a command packet, for the commands that a replica sends."""

    QUIT = 0x01
    QUERY = 0x03
    PING = 0x0E
    BINLOG_DUMP = 0x12
    REGISTER_SLAVE = 0x15


class DumpFlag(IntFlag):
    """Flags of COM_BINLOG_DUMP."""

    NON_BLOCK = 1
    """Send EOF at the end of the binlog instead of waiting for more events."""
    SEND_ANNOTATE_ROWS = 2
