"""Random tables, rows at the ends of their types, and random ALTERs of every action that MariaDB has.

`Cases(seed)` gives the same statements for the same seed. Many are errors for the server: those change nothing.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

CHARSETS = ("latin1", "utf8mb3", "utf8mb4", "ascii", "binary", "ucs2")
COLLATIONS = (
    *("utf8mb4_bin", "utf8mb4_general_ci", "utf8mb4_unicode_ci", "utf8mb4_nopad_bin", "latin1_bin"),
    *("latin1_swedish_ci", "utf8mb3_bin", "utf8mb4_unicode_520_ci"),
)
TEXTS = (
    "''",
    "' '",
    "'a'",
    "'A'",
    "'a '",
    "'ab  '",
    "'b'",
    "'0'",
    "'1'",
    "'ä'",
    "'ß'",
    "'12.5'",
    "'2020-01-01'",
    "'x,y'",
)
BYTES = ("''", "x'00'", "'a'", "x'6100'", "x'6120'", "x'ff'", "'abcd'", "x'61626300'")
NUMBERS = ("0", "1", "-1", "127", "128", "255", "256", "-128", "32767", "65535", "8388607", "8388608", "16777215")
BIG = ("2147483647", "2147483648", "4294967295", "-2147483648", "9223372036854775807", "18446744073709551615")
FRACTIONS = ("0", "0.1", "-0.1", "1.005", "123456.789", "99999999.99", "1e10", "0.123456789012345", "-1", "1e-5")
DATES = ("'0000-00-00'", "'2020-02-29'", "'2020-00-10'", "'1000-01-01'", "'9999-12-31'", "'2020-02-31'")
TIMES = ("'00:00:00'", "'-838:59:59'", "'838:59:59'", "'12:34:56.789012'", "'-00:00:00.5'")
MOMENTS = (
    *("'0000-00-00 00:00:00'", "'2020-02-29 12:34:56.789012'", "'1000-01-01 00:00:00'", "'2020-00-10 01:02:03'"),
    *("'9999-12-31 23:59:59.999999'", "'2020-02-31 00:00:00'"),
)
STAMPS = (
    *("'0000-00-00 00:00:00'", "FROM_UNIXTIME(1603585800)", "FROM_UNIXTIME(1603589400.5)", "'2020-06-01 00:00:00'"),
    *("FROM_UNIXTIME(1)", "FROM_UNIXTIME(2147483647.999999)", "FROM_UNIXTIME(1603591200)"),
)
LABELS = ("'a'", "'b'", "'A'", "''", "'c'", "'ä'", "'x y'", "'0'", "'1'")
MODES = (
    *("", "STRICT_TRANS_TABLES", "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE", "PAD_CHAR_TO_FULL_LENGTH"),
    *("NO_ZERO_DATE,NO_ZERO_IN_DATE", "ALLOW_INVALID_DATES", "NO_AUTO_VALUE_ON_ZERO", "TIME_ROUND_FRACTIONAL"),
    *("ANSI_QUOTES,NO_BACKSLASH_ESCAPES", "REAL_AS_FLOAT", "ORACLE"),
)
NULLNESS = ("", "", " NULL", " NOT NULL")


@dataclass
class Table:
    """One table: columns by their names, as they are declared."""

    columns: dict[str, str] = field(default_factory=dict)
    create: list[str] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)


class Cases:
    """The cases of one seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._names = [f"c{number}" for number in range(6)]

    def one(self, *of: str) -> str:
        return self._random.choice(of)

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    # -- types -------------------------------------------------------------------------------------------------------

    def kind(self) -> str:
        integer = self.one("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT")
        made = self.one(
            *("int", "int", "decimal", "float", "char", "char", "binary", "text", "enum", "date", "moment", "moment"),
            *("bit", "year", "other"),
        )
        digits = self._random.randint(1, 44)
        fsp = self.one("", "", "(1)", "(3)", "(6)")
        return {
            "int": integer + self.one("", "", " UNSIGNED", "(5) ZEROFILL"),
            "decimal": f"DECIMAL({digits},{self.one('0', '2', str(min(digits, 12)))})" + self.one("", " UNSIGNED", ""),
            "float": self.one("FLOAT", "DOUBLE", "DOUBLE(10,2)", "FLOAT(7,3)", "DOUBLE UNSIGNED"),
            "char": self.one("CHAR", "VARCHAR") + f"({self.one('1', '3', '10', '40')})" + self.charset(),
            "binary": self.one("BINARY(4)", "BINARY(6)", "VARBINARY(4)", "VARBINARY(9)", "BLOB", "TINYBLOB"),
            "text": self.one("TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT") + self.charset(),
            "enum": self.one("ENUM", "SET") + f"({','.join(self.labels())})" + self.charset(),
            "date": self.one("DATE", f"TIME{fsp}", f"TIME{fsp}"),
            "moment": self.one("DATETIME", "DATETIME", "TIMESTAMP") + fsp,
            "bit": self.one("BIT(1)", "BIT(4)", "BIT(17)", "BIT(64)"),
            "year": self.one("YEAR", "YEAR(4)", "YEAR(2)"),
            "other": self.one("JSON", "INET6", "UUID", "POINT", "VARCHAR(20) COMPRESSED", "BLOB COMPRESSED"),
        }[made]

    def charset(self) -> str:
        if self.chance(0.5):
            return ""
        return f" CHARACTER SET {self.one(*CHARSETS)}" if self.chance(0.5) else f" COLLATE {self.one(*COLLATIONS)}"

    def labels(self) -> list[str]:
        return self._random.sample(LABELS, self._random.randint(1, 4))

    def like(self, declared: str) -> str:
        """A type like one that is declared: longer, shorter, of another sign, another set, or the same."""
        base = declared.replace(" NOT NULL", "").replace(" NULL", "").partition(" DEFAULT ")[0]
        name = base.partition("(")[0].partition(" ")[0]
        labels = base[base.find("(") + 1 : base.find(")")] if name in ("ENUM", "SET") else ""
        rest = base[base.find(")") + 1 :] if "(" in base else base.partition(" ")[2]
        rest = "" if "VIRTUAL" in rest or "STORED" in rest else rest
        sizes = {
            "DECIMAL": ("(12,2)", "(40,2)", "(42,2)", "(20,0)", "(44,12)", "(30,12)", ""),
            "CHAR": ("(1)", "(3)", "(11)", "(41)", "(60)"),
            "VARCHAR": ("(1)", "(3)", "(11)", "(41)", "(300)"),
            "BINARY": ("(4)", "(6)", "(8)"),
            "VARBINARY": ("(4)", "(9)", "(12)", "(300)"),
            "BIT": ("(1)", "(4)", "(17)", "(40)", "(64)"),
            "DOUBLE": ("", "(10,2)", "(20,4)"),
            "FLOAT": ("", "(7,3)", "(9,2)"),
            "YEAR": ("", "(4)", "(2)"),
            **dict.fromkeys(("TIME", "DATETIME", "TIMESTAMP"), ("", "(1)", "(2)", "(3)", "(6)")),
            **dict.fromkeys(("ENUM", "SET"), tuple(f"({labels}{more})" for more in (",'new'", ",'A'", ",'','z'", ""))),
        }
        wider = {"TINYINT": "SMALLINT", "SMALLINT": "MEDIUMINT", "MEDIUMINT": "INT", "INT": "BIGINT", "BIGINT": "INT"}
        if name in wider:
            return self.one(wider[name], name) + self.one("", " UNSIGNED", rest and f" {rest.strip()}")
        if name in sizes:
            return (
                name
                + self.one(*sizes[name])
                + self.one(rest, rest, rest, self.charset() if name in "CHARVARCHARENUMSET" else "")
            )
        other = {"TEXT": ("MEDIUMTEXT", "TINYTEXT"), "BLOB": ("LONGBLOB",), "JSON": ("LONGTEXT",)}
        return self.one(base, *other.get(name, ()))

    def default(self, declared: str) -> str:
        if self.chance(0.5):
            return ""
        values = self.values(declared)
        return " DEFAULT " + self.one("NULL", *values, *values, "(1 + 1)", "CURRENT_TIMESTAMP")

    def values(self, declared: str) -> tuple[str, ...]:
        """Values at the ends of a type."""
        name = declared.partition("(")[0].partition(" ")[0]
        if name.endswith("INT") or name == "BIT":
            return (*NUMBERS, *BIG)
        if name in ("DECIMAL", "FLOAT", "DOUBLE"):
            return FRACTIONS
        if name in ("ENUM", "SET"):
            return (*declared[declared.find("(") + 1 : declared.find(")")].split(","), "0", "1", "2")
        if name in ("BINARY", "VARBINARY", "BLOB", "TINYBLOB", "LONGBLOB"):
            return BYTES
        return {
            "DATE": DATES,
            "TIME": TIMES,
            "DATETIME": MOMENTS,
            "TIMESTAMP": STAMPS,
            "YEAR": ("0", "1901", "2155", "70", "69", "2026"),
            "JSON": ("'{}'", "'[1, 2]'", "'\"ä\"'"),
            "INET6": ("'::1'", "'::'", "'1.2.3.4'"),
            "UUID": ("'00000000-0000-0000-0000-000000000001'", "UUID()"),
            "POINT": ("POINT(1, 2)", "ST_PointFromText('POINT(0 0)')"),
        }.get(name, TEXTS)

    # -- tables ------------------------------------------------------------------------------------------------------

    def table(self) -> Table:
        table = Table()
        parts = []
        key = self.one(
            "id INT PRIMARY KEY",
            "id INT",
            "id BINARY(4) PRIMARY KEY",
            "id BIGINT AUTO_INCREMENT PRIMARY KEY",
            "id INT UNIQUE",
        )
        if self.chance(0.8):
            parts.append(key)
            table.columns["id"] = key.partition(" ")[2].partition(" PRIMARY")[0].partition(" UNIQUE")[0]
        for name in self._names[: self._random.randint(1, 4)]:
            kind = self.kind() + self.one(*NULLNESS)
            table.columns[name] = kind
            parts.append(f"{name} {kind}")
        plain = dict(table.columns)
        if self.chance(0.2):
            table.columns["g"] = self.generated(table)
            parts.append(f"g {table.columns['g']}")
        options = self.one("", "", "", " ENGINE=Aria", " ENGINE=MyISAM", f" CHARACTER SET {self.one(*CHARSETS)}")
        partitions = " PARTITION BY KEY() PARTITIONS 3" if self.chance(0.05) else ""
        table.create = [f"CREATE TABLE t ({', '.join(parts)}){options}{partitions}"]
        for _ in range(self._random.randint(0, 12)):
            values = [self.one("NULL", *self.values(kind), *self.values(kind)) for kind in plain.values()]
            table.rows.append(f"INSERT IGNORE INTO t ({', '.join(plain)}) VALUES ({', '.join(values)})")
        return table

    def generated(self, table: Table) -> str:
        name = self.one(*table.columns)
        made = self.one(f"HEX({name})", f"LENGTH({name})", f"CONCAT({name}, '!')", f"({name} = 'a')", f"({name} + 1)")
        return f"VARCHAR(90) AS ({made}) {self.one('VIRTUAL', 'STORED')}"

    # -- statements --------------------------------------------------------------------------------------------------

    def statement(self, table: Table) -> str:
        if self.chance(0.03):
            return self.one("CREATE UNIQUE INDEX u ON t (c0)", "CREATE INDEX i ON t (c0)", "OPTIMIZE TABLE t")
        ignore = " IGNORE" * self.chance(0.08)
        online = " ONLINE" * self.chance(0.05)
        wait = self.one(*[""] * 12, " WAIT 5", " NOWAIT")
        actions = [self.action(table) for _ in range(self._random.choice((1, 1, 1, 2, 2, 3)))]
        if self.chance(0.1):
            actions.append(self.one("ALGORITHM=COPY", "ALGORITHM=INPLACE", "ALGORITHM=NOCOPY", "LOCK=SHARED", "FORCE"))
        return f"ALTER{online}{ignore} TABLE t{wait} {', '.join(actions)}"

    def action(self, table: Table) -> str:  # noqa: PLR0911  (one for each kind)
        columns = table.columns
        name = self.one(*columns)
        new = self.one("n0", "n1", *self._names)
        kind = (self.like(columns[name]) if self.chance(0.85) else self.kind()) + self.one(*NULLNESS)
        null = self.one(*NULLNESS)
        place = self.one(*[""] * 8, " FIRST", f" AFTER {self.one(*columns)}")
        attributes = (" AUTO_INCREMENT", " INVISIBLE", " COMMENT 'x'", " UNIQUE", " AS (1) STORED", " CHECK (1)")
        more = self.one(*[""] * 14, *attributes)
        match self.one(*["modify"] * 8, *["add"] * 4, *["change"] * 2, *["rename"] * 2, "drop", "swap", *["other"] * 4):
            case "modify":
                more = self.one(
                    *[""] * 14, " AUTO_INCREMENT", " INVISIBLE", " COMMENT 'x'", " UNIQUE", " AS (1) STORED"
                )
                return f"MODIFY {name} {kind}{more}{place}"
            case "change":
                return f"CHANGE {name} {new} {kind}{place}"
            case "add":
                condition = "IF NOT EXISTS " * self.chance(0.1)
                declared = self.kind()
                declared += null + self.default(declared) * (not more) + more
                return f"ADD COLUMN {condition}{new} {declared}{place}"
            case "rename":
                return f"RENAME COLUMN {name} TO {new}"
            case "drop":
                return f"DROP COLUMN {'IF EXISTS ' * self.chance(0.3)}{self.one(name, new)}"
            case "swap":
                other = self.one(*columns)
                return f"RENAME COLUMN {name} TO {other}, RENAME COLUMN {other} TO {name}"
        return self.other(name)

    def other(self, name: str) -> str:
        return self.one(
            *(f"ADD INDEX ({name})", f"ADD UNIQUE KEY ({name})", f"ADD PRIMARY KEY ({name})", "DROP PRIMARY KEY"),
            *(f"DROP INDEX {name}", f"ADD CONSTRAINT CHECK ({name} <> 77)", f"ALTER {name} SET DEFAULT 5"),
            *(f"ALTER COLUMN {name} DROP DEFAULT", "ENGINE=InnoDB", "ENGINE=Aria", "ENGINE=MyISAM", "ENGINE=MEMORY"),
            *("ENGINE=BLACKHOLE", "ENGINE=CSV", "ENGINE=ARCHIVE", "ROW_FORMAT=COMPRESSED", "ROW_FORMAT=FIXED"),
            *(
                f"CONVERT TO CHARACTER SET {self.one(*CHARSETS)}",
                f"CONVERT TO CHARACTER SET utf8mb4 COLLATE {self.one(*COLLATIONS)}",
            ),
            *(f"DEFAULT CHARACTER SET {self.one(*CHARSETS)}", "COMMENT 'x'", "AUTO_INCREMENT=500", f"ORDER BY {name}"),
            *(f"PARTITION BY HASH({name}) PARTITIONS 2", "REMOVE PARTITIONING", "PARTITION BY KEY() PARTITIONS 2"),
            *("ADD SYSTEM VERSIONING", "FORCE", "DISABLE KEYS", "ENABLE KEYS", "CHECKSUM=1", "KEY_BLOCK_SIZE=8"),
            *(f"PARTITION BY LIST({name}) (PARTITION p VALUES IN (0,1,127))", "STATS_PERSISTENT=1", "MAX_ROWS=3"),
            *("DROP CONSTRAINT x", f"RENAME INDEX {name} TO j", "TRUNCATE PARTITION p0", "COALESCE PARTITION 1"),
            *("ADD FULLTEXT (c0)", f"ADD PERIOD FOR p({name}, c1)", "REPAIR PARTITION ALL", "DISCARD TABLESPACE"),
        )
