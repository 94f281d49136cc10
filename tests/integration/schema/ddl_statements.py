"""Random DDL for hypothesis: columns of every type, and sequences of statements that a server mostly accepts.

A statement may be refused by the server (a key on a column that cannot have one): then nothing is logged, and nothing
must change. Names come from a small set, so that statements meet each other's tables and columns.
"""

from __future__ import annotations

from hypothesis import strategies as st

# Plain names: ALTER … RENAME TO that copies a table leaves it behind if its file name is not its name, in all versions.
TABLES = ("t", "MiXed", "other_1")
COLUMNS = ("a", "C", "k`ey", "größe", "from", "x.y")
CHARSETS = ("latin1", "utf8mb3", "utf8mb4", "ucs2", "binary", "gbk", "utf16")
TEXTS = ("tinytext", "text", "mediumtext", "longtext", "text(300)")
BYTES = ("binary", "varbinary", "blob")
COLLATIONS = ("latin1_bin", "utf8mb4_bin", "utf8mb4_unicode_ci", "utf8mb3_general_ci", "ucs2_bin")


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


names = st.sampled_from(COLUMNS)
tables = st.sampled_from(TABLES).map(quoted)
ascii_text = st.characters(min_codepoint=32, max_codepoint=126, exclude_characters=",\\")
labels = st.lists(
    st.text(ascii_text, max_size=8).map(lambda label: label.rstrip(" ")), min_size=1, max_size=5, unique_by=str.casefold
)
charset = st.sampled_from(
    ("", *(f" character set {name}" for name in CHARSETS), *(f" collate {c}" for c in COLLATIONS))
)
sign = st.sampled_from(("", " unsigned", " zerofill", " signed"))


@st.composite
def enumerations(draw: st.DrawFn) -> str:
    listed = draw(labels)
    encoding = draw(charset)
    if encoding and "binary" not in encoding and "gbk" not in encoding:
        listed = [*listed, "größe"]
    values = ",".join("'" + label.replace("'", "''") + "'" for label in listed)
    return f"{draw(st.sampled_from(('enum', 'set')))}({values}){encoding}"


@st.composite
def types(draw: st.DrawFn) -> str:
    sized = st.integers(1, 200).map(str)
    return draw(
        st.one_of(
            st.builds(
                "{}{}".format,
                st.sampled_from(("tinyint", "smallint", "mediumint", "int", "bigint", "int3", "integer(7)", "int8")),
                sign,
            ),
            st.builds("{}{}".format, st.sampled_from(("float", "double", "real", "float(7,3)", "float(30)")), sign),
            st.builds(
                lambda digits, scale, sign: f"decimal({max(digits, scale)},{scale}){sign}",
                st.integers(1, 65),
                st.integers(0, 30),
                sign,
            ),
            st.builds("{}({}){}".format, st.sampled_from(("char", "varchar", "character varying")), sized, charset),
            st.builds("{}{}".format, st.sampled_from(TEXTS), charset),
            st.builds("{}({})".format, st.sampled_from(BYTES), sized),
            st.builds("{}({})".format, st.sampled_from(("time", "datetime", "timestamp")), st.integers(0, 6)),
            st.builds("bit({})".format, st.integers(1, 64)),
            st.sampled_from(
                (
                    "date", "year", "bool", "json", "point", "geometry", "inet6", "nchar(5)", "national varchar(7)",
                    "long varchar", "longblob", "tinyblob", "dec", "bit", "char", "binary", "varchar(30) compressed",
                    "blob compressed", "timestamp null", "serial", "uuid", "inet4",
                )
            ),
            enumerations(),
        )
    )  # fmt: skip


attributes = st.sampled_from(
    ("", "", "", "", " not null", " not null", " null", " comment 'it''s; \"x\" `y` -- /* '",
     " invisible default 5", " default null", " unique", " primary key", " check (1 > 0)", " default (1 + (2))")
)  # fmt: skip


@st.composite
def columns(draw: st.DrawFn, name: str | None = None) -> str:
    return f"{quoted(name or draw(names))} {draw(types())}{draw(attributes)}"


@st.composite
def creations(draw: st.DrawFn) -> str:
    listed = [draw(columns(name)) for name in draw(st.lists(names, min_size=1, max_size=6, unique=True))]
    items = ", ".join([*listed, *draw(st.one_of(st.just([]), st.just([]), st.lists(keys(), max_size=1)))])
    how = draw(st.sampled_from(("create or replace table", "create or replace table", "create table if not exists")))
    options = draw(st.sampled_from(("", " engine=aria", " with system versioning", " comment='charset ucs2, (x'")))
    return f"{how} {draw(tables)} ({items}){draw(charset)}{options}"


@st.composite
def keys(draw: st.DrawFn) -> str:
    parts = ", ".join(map(quoted, draw(st.lists(names, min_size=1, max_size=2, unique=True))))
    return draw(st.sampled_from(("primary key", "unique key u", "key k"))) + f" ({parts})"


@st.composite
def actions(draw: st.DrawFn) -> str:
    column, other = quoted(draw(names)), quoted(draw(names))
    place = draw(st.sampled_from(("", "", " first", f" after {other}")))
    return draw(
        st.one_of(
            columns().map(lambda text: f"add column {text}{place}"),
            columns().map(lambda text: f"add {text}{place}"),
            columns().map(lambda text: f"add column if not exists {text}"),
            st.just(f"drop column {column}"),
            st.just(f"drop column if exists {column}"),
            columns().map(lambda text: f"modify {text}{place}"),
            columns().map(lambda text: f"change {column} {text}{place}"),
            st.just(f"rename column {column} to {other}"),
            st.sampled_from(CHARSETS).map(lambda name: f"convert to character set {name}"),
            st.sampled_from(CHARSETS).map(lambda name: f"default character set {name}"),
            st.sampled_from(("add system versioning", "drop system versioning", "drop primary key", "force",
                             "comment='x, add y int'", "engine=innodb", "drop key u")),
            keys().map(lambda text: f"add {text}"),
            tables.map(lambda name: f"rename to {name}"),
        )
    )  # fmt: skip


def alterations() -> st.SearchStrategy[str]:
    one = st.builds("alter table {} {}".format, tables, actions())
    several = st.lists(actions(), min_size=2, max_size=3).map(", ".join)
    return st.one_of(one, one, st.builds("alter table {} {}".format, tables, several))


def statements() -> st.SearchStrategy[str]:
    """One statement; most of them alter a table."""
    seldom = st.one_of(
        st.builds("drop table if exists {}".format, tables),
        # One at a time: 10.5 leaves a table under both names when it takes a rename back because a later one failed.
        st.builds("rename table {} to {}".format, tables, tables),
        st.builds("create or replace table {} like {}".format, tables, tables),
        st.builds("create or replace table {} as select * from {}".format, tables, tables),
        st.builds("alter database d character set {}".format, st.sampled_from(CHARSETS)),
    )
    return st.one_of(alterations(), alterations(), alterations(), creations(), seldom)
