"""The numbers of the binlog protocol under the server's own names.

Values a peer may extend (event types, column types, status variables) are read as plain integers and compared with
these enums, so that an unknown code is a decision of the caller and never a ValueError from an enum.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final

BINLOG_MAGIC: Final = b"\xfebin"
HEADER_LENGTH: Final = 19
"""Bytes of the header every event starts with."""
CHECKSUM_LENGTH: Final = 4
FIRST_POSITION: Final = len(BINLOG_MAGIC)
"""Offset of the first event in a binlog file."""
MAX_EVENT_BYTES: Final = 1 << 30
"""The server's MAX_MAX_ALLOWED_PACKET: a dump thread never sends a larger event, whatever max_allowed_packet says."""
MAX_COLUMNS: Final = 4096
"""The server's MAX_FIELDS; a table map with more is corrupt."""


class EventType(IntEnum):
    """Log_event_type of the server, MariaDB's and MySQL's."""

    UNKNOWN = 0
    START_V3 = 1
    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    LOAD = 6
    SLAVE = 7
    CREATE_FILE = 8
    APPEND_BLOCK = 9
    EXEC_LOAD = 10
    DELETE_FILE = 11
    NEW_LOAD = 12
    RAND = 13
    USER_VAR = 14
    FORMAT_DESCRIPTION = 15
    XID = 16
    BEGIN_LOAD_QUERY = 17
    EXECUTE_LOAD_QUERY = 18
    TABLE_MAP = 19
    PRE_GA_WRITE_ROWS = 20
    PRE_GA_UPDATE_ROWS = 21
    PRE_GA_DELETE_ROWS = 22
    WRITE_ROWS_V1 = 23
    UPDATE_ROWS_V1 = 24
    DELETE_ROWS_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    IGNORABLE = 28
    ROWS_QUERY = 29
    WRITE_ROWS = 30
    UPDATE_ROWS = 31
    DELETE_ROWS = 32
    GTID_LOG = 33
    ANONYMOUS_GTID = 34
    PREVIOUS_GTIDS = 35
    TRANSACTION_CONTEXT = 36
    VIEW_CHANGE = 37
    XA_PREPARE = 38
    PARTIAL_UPDATE_ROWS = 39
    TRANSACTION_PAYLOAD = 40
    HEARTBEAT_V2 = 41
    GTID_TAGGED_LOG = 42
    ANNOTATE_ROWS = 160
    BINLOG_CHECKPOINT = 161
    GTID = 162
    GTID_LIST = 163
    START_ENCRYPTION = 164
    QUERY_COMPRESSED = 165
    WRITE_ROWS_COMPRESSED_V1 = 166
    UPDATE_ROWS_COMPRESSED_V1 = 167
    DELETE_ROWS_COMPRESSED_V1 = 168
    WRITE_ROWS_COMPRESSED = 169
    UPDATE_ROWS_COMPRESSED = 170
    DELETE_ROWS_COMPRESSED = 171
    PARTIAL_ROW_DATA = 172


HISTORICAL: Final = frozenset(
    {
        EventType.START_V3,
        EventType.LOAD,
        EventType.SLAVE,
        EventType.CREATE_FILE,
        EventType.EXEC_LOAD,
        EventType.NEW_LOAD,
        EventType.PRE_GA_WRITE_ROWS,
        EventType.PRE_GA_UPDATE_ROWS,
        EventType.PRE_GA_DELETE_ROWS,
    }
)
"""Events of servers before MySQL 5.1 (LOAD DATA of old, rows before their release), which nothing writes today."""


def event_name(event_type: int) -> str:
    """The type's name for messages, with the number when it has no name here."""
    try:
        return f"{EventType(event_type).name} ({event_type})"
    except ValueError:
        return f"type {event_type}"


class HeaderFlag(IntFlag):
    """Flags of the event header."""

    BINLOG_IN_USE = 0x1
    """FORMAT_DESCRIPTION in a file only: the file was not closed. Left out of that event's own checksum."""
    THREAD_SPECIFIC = 0x4
    SUPPRESS_USE = 0x8
    ARTIFICIAL = 0x20
    """Made for this connection, not in the primary's binlog: its log_pos is no position to resume from."""
    RELAY_LOG = 0x40
    IGNORABLE = 0x80
    """A reader that does not know the type may skip the event."""
    NO_FILTER = 0x100
    MTS_ISOLATE = 0x200
    ACCEPT_OWN = 0x4000
    SKIP_REPLICATION = 0x8000


class GtidFlag(IntFlag):
    """flags2 of a GTID event."""

    STANDALONE = 1
    """One statement follows and no COMMIT: the group ends with its first QUERY."""
    GROUP_COMMIT_ID = 2
    TRANSACTIONAL = 4
    ALLOW_PARALLEL = 8
    WAITED = 16
    DDL = 32
    PREPARED_XA = 64
    COMPLETED_XA = 128


class GtidExtraFlag(IntFlag):
    """flags_extra of a GTID event (10.8+)."""

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
    """Last rows event of its statement: the table maps of the statement end here."""
    NO_FOREIGN_KEY_CHECKS = 2
    RELAXED_UNIQUE_CHECKS = 4
    COMPLETE_ROWS = 8
    NO_CHECK_CONSTRAINT_CHECKS = 0x10


class ColumnType(IntEnum):
    """enum_field_types of the server. ENUM and SET travel as STRING with the real type in the metadata."""

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
    """Status variables of QUERY events: session state a statement depends on."""

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
    """First byte of a command packet; the ones a replica sends."""

    QUIT = 0x01
    QUERY = 0x03
    PING = 0x0E
    BINLOG_DUMP = 0x12
    REGISTER_SLAVE = 0x15


class DumpFlag(IntFlag):
    """Flags of COM_BINLOG_DUMP."""

    NON_BLOCK = 1
    """EOF at the end of the binlog instead of waiting for more."""
    SEND_ANNOTATE_ROWS = 2
