"""MariaDB's comparison of the names of columns, tables and databases.

`column_key` is the rule for columns, keys and constraints. `table_key` is the rule for tables and databases: by bytes,
or in lower case with `lower_case_table_names`. No module may compare names by `str.casefold`, which treats `maße` and
`masse` as equal (tests/unit/house/test_name_rules.py). Spark's rules are in streaming_source/schema/spark_names.py.

The two character tables were read from servers. tests/integration/connection/test_naming.py compares them with each
server: every character that a name may have, and every equal pair as two columns of one table.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Final

from replica.schema.text.sql_tokens import ANY_VERSION

if TYPE_CHECKING:
    TableName = tuple[str, str]

COMPARED_BY_UPPER_CASE: Final = 110500
"""First version that compares identifiers by the simple upper case of Unicode 14.

Source: `Compare_ident_ci` in sql/lex_ident.h, with utf8mb3_general1400_as_ci. Before, `my_strcasecmp` compares by the
lower case of utf8mb3_general_ci.
"""


def column_key(name: str, server_version: int = ANY_VERSION) -> str:
    """Return a key that two names share if the server treats them as one column.

    Accents and trailing spaces are significant. If the server's version is unknown, two names share a key only if every
    version treats them as equal: `A` and `a` share one. Long s (U+017F) and `s` do not, because they are equal only
    from 11.5 on.
    """
    if name.isascii():
        return name.lower()
    if server_version == ANY_VERSION:
        return name.translate(_by_either())
    return name.translate(_by_upper_case() if server_version >= COMPARED_BY_UPPER_CASE else _by_lower_case())


def quoted(name: str) -> str:
    """Return an identifier in backquotes, as SQL of MariaDB. The only place that quotes one."""
    return "`" + name.replace("`", "``") + "`"


def quoted_table(name: TableName) -> str:
    """Return the name of a table as SQL of MariaDB, with its database."""
    return ".".join(map(quoted, name))


def lowered(name: str) -> str:
    """Return the name as stored by a server that keeps tables and databases in lower case (`my_casedn_str`)."""
    return name.translate(_by_lower_case())


def table_key(name: TableName, *, lower_case_table_names: bool) -> TableName:
    """Return the comparison key of a table's name: in lower case with `lower_case_table_names` 1 and 2."""
    return (lowered(name[0]), lowered(name[1])) if lower_case_table_names else (name[0], name[1])


@functools.cache
def _by_lower_case() -> dict[int, int]:
    return _mapping(_LOWER_CASE)


@functools.cache
def _by_upper_case() -> dict[int, int]:
    """Return the mapping to upper case; ASCII letters map to lower case, as in the other rules."""
    ascii_letters = {ord(letter.upper()): ord(letter) for letter in "abcdefghijklmnopqrstuvwxyz"}
    return ascii_letters | {one: ascii_letters.get(upper, upper) for one, upper in _mapping(_UPPER_CASE).items()}


@functools.cache
def _by_either() -> dict[int, int]:
    lower, upper = _by_lower_case(), _by_upper_case()
    found: dict[int, int] = {}
    first: dict[tuple[int, int], int] = {}
    for one in sorted({*lower, *upper, *lower.values(), *upper.values()}, key=lambda one: (lower.get(one, one), -one)):
        found[one] = first.setdefault((lower.get(one, one), upper.get(one, one)), one)
    return found


def _mapping(runs: str) -> dict[int, int]:
    found = {}
    for first, last, every_second, distance in re.findall(r"(\w+)(?:[.]{2}(\w+))?(/2)?([+-]\w+)", runs):
        for one in range(int(first, 16), int(last or first, 16) + 1, 2 if every_second else 1):
            found[one] = one + int(distance, 16)
    return found


_LOWER_CASE: Final = """
    41..5A+20 C0..D6+20 D8..DE+20 100..12E/2+1 130-C7 132..136/2+1 139..147/2+1 14A..176/2+1 178-79 179..17D/2+1
    181+D2 182..184/2+1 186+CE 187+1 189..18A+CD 18B+1 18E+4F 18F+CA 190+CB 191+1 193+CD 194+CF 196+D3 197+D1 198+1
    19C+D3 19D+D5 19F+D6 1A0..1A4/2+1 1A6+DA 1A7+1 1A9+DA 1AC+1 1AE+DA 1AF+1 1B1..1B2+D9 1B3..1B5/2+1 1B7+DB 1B8+1
    1BC+1 1C4+2 1C5+1 1C7+2 1C8+1 1CA+2 1CB..1DB/2+1 1DE..1EE/2+1 1F1+2 1F2..1F4/2+1 1F6-61 1F7-38 1F8..21E/2+1
    222..232/2+1 386+26 388..38A+25 38C+40 38E..38F+3F 391..3A1+20 3A3..3AB+20 3DA..3EE/2+1 400..40F+50 410..42F+20
    460..480/2+1 48C..4BE/2+1 4C1..4C3/2+1 4C7+1 4CB+1 4D0..4F4/2+1 4F8+1 531..556+30 1E00..1E94/2+1 1EA0..1EF8/2+1
    1F08..1F0F-8 1F18..1F1D-8 1F28..1F2F-8 1F38..1F3F-8 1F48..1F4D-8 1F59..1F5F/2-8 1F68..1F6F-8 1F88..1F8F-8
    1F98..1F9F-8 1FA8..1FAF-8 1FB8..1FB9-8 1FBA..1FBB-4A 1FBC-9 1FC8..1FCB-56 1FCC-9 1FD8..1FD9-8 1FDA..1FDB-64
    1FE8..1FE9-8 1FEA..1FEB-70 1FEC-7 1FF8..1FF9-80 1FFA..1FFB-7E 1FFC-9 2126-1D5D 212A-20BF 212B-2046 2160..216F+10
    24B6..24CF+1A FF21..FF3A+20
"""
"""Lower case in utf8mb3_general_ci, from LOWER(): runs `first..last/step+distance` of characters, hexadecimal."""

_UPPER_CASE: Final = """
    61..7A-20 B5+2E7 E0..F6-20 F8..FE-20 FF+79 101..12F/2-1 131-E8 133..137/2-1 13A..148/2-1 14B..177/2-1
    17A..17E/2-1 17F-12C 180+C3 183..185/2-1 188-1 18C-1 192-1 195+61 199-1 19A+A3 19E+82 1A1..1A5/2-1 1A8-1 1AD-1
    1B0-1 1B4..1B6/2-1 1B9-1 1BD-1 1BF+38 1C5-1 1C6-2 1C8-1 1C9-2 1CB-1 1CC-2 1CE..1DC/2-1 1DD-4F 1DF..1EF/2-1 1F2-1
    1F3-2 1F5-1 1F9..21F/2-1 223..233/2-1 23C-1 23F..240+2A3F 242-1 247..24F/2-1 250+2A1F 251+2A1C 252+2A1E 253-D2
    254-CE 256..257-CD 259-CA 25B-CB 25C+A54F 260-CD 261+A54B 263-CF 265+A528 266+A544 268-D1 269-D3 26A+A544
    26B+29F7 26C+A541 26F-D3 271+29FD 272-D5 275-D6 27D+29E7 280-DA 282+A543 283-DA 287+A52A 288-DA 289-45
    28A..28B-D9 28C-47 292-DB 29D+A515 29E+A512 345+54 371..373/2-1 377-1 37B..37D+82 3AC-26 3AD..3AF-25 3B1..3C1-20
    3C2-1F 3C3..3CB-20 3CC-40 3CD..3CE-3F 3D0-3E 3D1-39 3D5-2F 3D6-36 3D7-8 3D9..3EF/2-1 3F0-56 3F1-50 3F2+7 3F3-74
    3F5-60 3F8-1 3FB-1 430..44F-20 450..45F-50 461..481/2-1 48B..4BF/2-1 4C2..4CE/2-1 4CF-F 4D1..52F/2-1 561..586-30
    10D0..10FA+BC0 10FD..10FF+BC0 13F8..13FD-8 1C80-186E 1C81-186D 1C82-1864 1C83..1C84-1862 1C85-1863 1C86-185C
    1C87-1825 1C88+89C2 1D79+8A04 1D7D+EE6 1D8E+8A38 1E01..1E95/2-1 1E9B-3B 1EA1..1EFF/2-1 1F00..1F07+8 1F10..1F15+8
    1F20..1F27+8 1F30..1F37+8 1F40..1F45+8 1F51..1F57/2+8 1F60..1F67+8 1F70..1F71+4A 1F72..1F75+56 1F76..1F77+64
    1F78..1F79+80 1F7A..1F7B+70 1F7C..1F7D+7E 1F80..1F87+8 1F90..1F97+8 1FA0..1FA7+8 1FB0..1FB1+8 1FB3+9 1FBE-1C25
    1FC3+9 1FD0..1FD1+8 1FE0..1FE1+8 1FE5+7 1FF3+9 214E-1C 2170..217F-10 2184-1 24D0..24E9-1A 2C30..2C5F-30 2C61-1
    2C65-2A2B 2C66-2A28 2C68..2C6C/2-1 2C73-1 2C76-1 2C81..2CE3/2-1 2CEC..2CEE/2-1 2CF3-1 2D00..2D25-1C60 2D27-1C60
    2D2D-1C60 A641..A66D/2-1 A681..A69B/2-1 A723..A72F/2-1 A733..A76F/2-1 A77A..A77C/2-1 A77F..A787/2-1 A78C-1
    A791..A793/2-1 A794+30 A797..A7A9/2-1 A7B5..A7C3/2-1 A7C8..A7CA/2-1 A7D1-1 A7D7..A7D9/2-1 A7F6-1 AB53-3A0
    AB70..ABBF-97D0 FF41..FF5A-20
"""
"""Simple upper case of Unicode 14.0, from WEIGHT_STRING() in utf8mb3_general1400_as_ci, in the same format."""
