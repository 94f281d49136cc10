"""The offset in Spark's checkpoint: a GTID position, where to resume, and the server's coordinates, as versioned JSON.

An offset means that everything up to and **including** these groups has been read. Spark compares offsets as JSON text,
so `SourceOffset.json` is the only place that builds one, and its key order is part of the format. Every version ever
written stays readable (tests/golden/offsets-v*.json). JSON that is not an offset, or is a newer version, is refused.

    {"v": 1, "gtid": "0-1-4711,1-2-9", "resume": "0-1-4711,1-2-9",
     "server": {"id": 1, "file": "bin.000007", "position": 4096, "uid": "5f…", "last": "0-1-4711 1700000000 …"}}

`resume` is where a dump must start to replay the following groups. It is before `gtid` while XA transactions are
prepared, because their rows belong to their XA COMMIT. `server` is the place where `gtid` ended in the primary's
binlog. It reveals a primary that was reset, or another server that reuses the sequence numbers. It is empty if no group
was read yet. `uid` distinguishes servers with the same id, and `last` identifies the transaction that ended there on
any server. Offsets of older releases have neither, and those releases ignore both. `anchor` marks the offset of the
empty first batch (see planning/planner.py). Other offsets do not have it.

Version 2 is written only for an offset that version 1 cannot express:

    {"v": 2, …, "part": {"gtid": "0-1-4712", "rows": 100000}}

`part`: the batch ended inside the transaction `gtid`, which the position does not include yet. Its row changes with an
ordinal below `rows` have been read. Ordinals are the same on every server and in every copy of the log; bytes and the
borders of events are not. `begin` is the offset where the batch that ends here began, whatever start Spark passes. The
end of the first batch of a Trigger.Once has `begin`, because there is no anchor before that batch. The end of a batch
whose start was changed to read tables has `begin`, too. `schema` has the table definitions at this place.

Version 3 is written only if sequence numbers went back (gtidStrictMode=false). An older release would ask for a
position that names several places (replica/protocol/gtid.py).

    {"v": 3, …, "highest": {"0": 9}}

`highest`: the domains whose GTID in `gtid` or `resume` may name several places, with the number up to which GTIDs of
the domain may do so. Then only `server` identifies the place, and the query cannot continue on another server.

Version 4 is written only while tables are being read (startingPosition=initial). An older release would continue with
the changes alone.

    {"v": 4, …, "snapshot": {"after": ["shop", "orders"], "open": [["shop", "lines", "BAABAAAA"]], "rows": 1200000}}

`snapshot`: which rows of which tables have been read, all as they were at `gtid` (the frontier of
replica/snapshot/frontier.py). Changes of other rows up to here are not delivered, because the snapshot rows that follow
include them. `snapshot` is absent if the query asks for changes alone, and after the last row was read.

The following keys may be in offsets of any version. `again` is the word in the option resnapshot that was applied
last. `asked` is the requests that this batch begins to execute (reading_requests.py):

    {…, "asked": {"words": ["7"], "tables": [["shop", "orders"]]}}

`refused` has the tables that are excluded from this batch on, because they cannot be read any more, and the reasons:

    {…, "refused": [["shop", "notes", "table shop.notes has no key that its rows can be read by: …"]]}

`selection` is what the query selects (selection.py). Older offsets do not have it.

None of `again`, `asked`, `refused`, `selection`, `uid` and `last` is part of the place, and releases that do not know
them ignore them. Two offsets that differ only in `selection`, `again`, `asked`, `refused`, `uid` and `last` are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from replica.errors import ConfigError
from replica.protocol.groups.fingerprint import Fingerprint
from replica.protocol.gtid import BinlogPosition, Gtid, GtidPosition
from replica.snapshot.frontier import Frontier
from streaming_source.offsets.reading_requests import RequestedTables
from streaming_source.offsets.selection import Selection

if TYPE_CHECKING:
    from replica.schema.known_tables import TableName

PLAIN_VERSION = 1
PART_VERSION = 2
REPEATED_VERSION = 3
VERSION = 4


@dataclass(frozen=True, slots=True)
class GroupPart:
    """Included part of the transaction `gtid`: its row changes with an ordinal below `rows`."""

    gtid: Gtid
    rows: int


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """Place of the stream.

    Attributes:
        position: the last group included, for each domain.
        primary: the place of `position` in the binlog of server `server_id`.
    """

    position: GtidPosition
    resume: GtidPosition
    primary: BinlogPosition | None = None
    server_id: int | None = None
    anchor: bool = False
    part: GroupPart | None = None
    begin: SourceOffset | None = None
    schema: str | None = None
    selection: Selection | None = field(default=None, compare=False)
    uid: str | None = field(default=None, compare=False)
    last: Fingerprint | None = field(default=None, compare=False)
    highest: tuple[tuple[int, int], ...] = ()
    """(domain, number), ascending: the number up to which GTIDs may name several places."""
    snapshot: Frontier | None = None
    """The rows of tables that were read; None if no rows are left to read."""
    again: str | None = field(default=None, compare=False)
    asked: RequestedTables | None = field(default=None, compare=False)
    """The re-snapshots that begin with this batch; None in other offsets."""
    refused: tuple[tuple[TableName, str], ...] = field(default=(), compare=False)
    """The tables from which no rows arrive any more, with the reasons; empty in other offsets."""

    @property
    def through(self) -> GtidPosition:
        """The position that includes every group of which any rows are included."""
        return self.position if self.part is None else self.position.advance(self.part.gtid)

    @property
    def resume_primary(self) -> BinlogPosition | None:
        """The place of `resume` in the primary's binlog, if it is known."""
        return self.primary if self.resume == self.position else None

    @property
    def place(self) -> SourceOffset:
        """Return the end of the last whole group, without marks and notes."""
        return replace(self, anchor=False, part=None, begin=None, selection=None, asked=None, refused=())

    def json(self) -> dict[str, Any]:
        """Return the JSON value for Spark; equal offsets give equal text."""
        plain = self.part is None and self.begin is None and self.schema is None
        server: dict[str, Any] = {}
        if self.primary is not None:
            server = {"id": self.server_id, "file": self.primary.file, "position": self.primary.position}
            server |= {} if self.uid is None else {"uid": self.uid}
            server |= {} if self.last is None else {"last": str(self.last)}
        value: dict[str, Any] = {
            "v": self._version(plain=plain),
            "gtid": str(self.position),
            "resume": str(self.resume),
            "server": server,
        }
        if self.selection is not None:
            value["selection"] = self.selection.json()
        if self.schema is not None:
            value["schema"] = self.schema
        if self.anchor:
            value["anchor"] = True
        if self.part is not None:
            value["part"] = {"gtid": str(self.part.gtid), "rows": self.part.rows}
        if self.begin is not None:
            value["begin"] = self.begin.json()
        if self.highest:
            value["highest"] = {str(domain): number for domain, number in self.highest}
        return value | self._reading_json()

    def _reading_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {}
        if self.snapshot is not None:
            value["snapshot"] = self.snapshot.json()
        if self.again is not None:
            value["again"] = self.again
        if self.asked is not None:
            value["asked"] = self.asked.json()
        if self.refused:
            value["refused"] = [[*name, why] for name, why in self.refused]
        return value

    def _version(self, *, plain: bool) -> int:
        """Return the oldest version that can express this offset."""
        if self.snapshot is not None or (self.begin is not None and self.begin.snapshot is not None):
            return VERSION
        return REPEATED_VERSION if self.highest else PLAIN_VERSION if plain else PART_VERSION

    @classmethod
    def parse(cls, value: object) -> SourceOffset:
        """Read the JSON value from a checkpoint as an offset.

        Raises:
            ConfigError: the checkpoint belongs to another source, or a newer version wrote it.
        """
        if not isinstance(value, Mapping) or not isinstance(value.get("v"), int):
            raise ConfigError(
                f"the checkpoint's offset {value!r} was not written by mariadb-binlog.",
                hint="Use a separate checkpoint folder for every query.",
            )
        if value["v"] > VERSION:
            raise ConfigError(
                f"the checkpoint's offset has version {value['v']}; this version reads up to {VERSION}.",
                hint="Upgrade spark-mariadb-binlog to the version that wrote the checkpoint.",
            )
        try:
            server = value["server"]
            primary = BinlogPosition(str(server["file"]), int(server["position"])) if server else None
            server_id = int(server["id"]) if server and server["id"] is not None else None
            position, resume = (GtidPosition.parse(str(value[key])) for key in ("gtid", "resume"))
            inside = value.get("part")
            part = None if inside is None else GroupPart(Gtid.parse(str(inside["gtid"])), int(inside["rows"]))
            uid = str(server["uid"]) if "uid" in server else None
            last = Fingerprint.parse(str(server["last"])) if "last" in server else None
            highest = tuple(sorted((int(domain), int(top)) for domain, top in value.get("highest", {}).items()))
            selection = None if value.get("selection") is None else Selection.parse(value["selection"])
            snapshot = None if value.get("snapshot") is None else Frontier.parse(value["snapshot"])
            again = None if value.get("again") is None else str(value["again"])
            asked = None if value.get("asked") is None else RequestedTables.parse(value["asked"])
            refused = tuple(((str(one), str(two)), str(why)) for one, two, why in value.get("refused", ()))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"the checkpoint's offset {value!r} is damaged ({type(error).__name__}: {error}).",
                hint="Restore the checkpoint folder, or start a new one with startingPosition.",
            ) from None
        begin = None if value.get("begin") is None else cls.parse(value["begin"])
        schema = None if value.get("schema") is None else str(value["schema"])
        anchor = bool(value.get("anchor", False))
        return cls(
            *(position, resume, primary, server_id, anchor, part, begin, schema, selection, uid, last),
            *(highest, snapshot, again, asked, refused),
        )
