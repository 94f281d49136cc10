"""Tables of the mirror's soak with cascading foreign keys. No binlog contains the cascaded row changes.

In: a connection and a random source. Out: transactions that delete, replace and move rows at every level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random

    from pymysql.cursors import Cursor

ROWS: Final = 600
FAMILY: Final = {
    "parents": "(id INT PRIMARY KEY, v INT)",
    "children": (
        "(id INT PRIMARY KEY, parent INT, v INT, CONSTRAINT of_parent FOREIGN KEY (parent) REFERENCES parents (id) "
        "ON DELETE CASCADE)"
    ),
    "grandchildren": (
        "(id INT PRIMARY KEY, child INT, elder INT, CONSTRAINT of_child FOREIGN KEY (child) REFERENCES children (id) "
        "ON DELETE SET NULL, CONSTRAINT of_elder FOREIGN KEY (elder) REFERENCES grandchildren (id) ON DELETE CASCADE)"
    ),
}
"""By name, parents first."""
FILLED: Final = (
    f"INSERT INTO parents SELECT seq, 0 FROM seq_1_to_{ROWS}",
    f"INSERT INTO children SELECT seq, 1 + seq MOD {ROWS}, 0 FROM seq_1_to_{2 * ROWS}",
    f"INSERT INTO grandchildren SELECT seq, seq, IF(seq > 1, seq DIV 2, NULL) FROM seq_1_to_{2 * ROWS}",
)


def change_family(cursor: Cursor, chance: random.Random) -> None:
    """Change some rows in one transaction; what a foreign key refuses is left out."""
    parent, child, elder = chance.randrange(1, ROWS), chance.randrange(1, 2 * ROWS), chance.randrange(1, 2 * ROWS)
    ways = (
        f"DELETE FROM parents WHERE id BETWEEN {parent} AND {parent + 1}",
        f"REPLACE INTO parents VALUES ({parent}, 1)",
        f"INSERT IGNORE INTO parents SELECT seq, 2 FROM seq_{parent}_to_{parent + 9}",
        f"INSERT IGNORE INTO children SELECT seq, {parent}, 3 FROM seq_{child}_to_{child + 9}",
        f"UPDATE IGNORE children SET parent = {parent} WHERE id BETWEEN {child} AND {child + 2}",
        f"DELETE FROM children WHERE id = {child}",
        f"INSERT IGNORE INTO grandchildren SELECT seq, {child}, {elder} FROM seq_{elder}_to_{elder + 9}",
        f"INSERT IGNORE INTO grandchildren SELECT seq, NULL, NULL FROM seq_{elder}_to_{elder + 9}",
        f"DELETE FROM grandchildren WHERE id = {elder}",
        f"UPDATE IGNORE grandchildren SET child = {child}, elder = NULL WHERE id BETWEEN {elder} AND {elder + 3}",
    )
    cursor.execute("BEGIN")
    for statement in chance.sample(ways, chance.randrange(1, 5)):
        cursor.execute(statement)
    cursor.execute("COMMIT")
