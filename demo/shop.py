"""Shop of the demo: filled tables, and a writer that sells, pays, ships and cancels.

`Shop` commits transactions at a steady rate in two GTID domains (product images in 1, everything else in 0). In
between, it makes changes that a mirror has to follow: an image over 16 MB, which the protocol splits over packets; an
ALTER TABLE; a table swap as gh-ost does it; a TRUNCATE. The writer records the time and the row changes of each
transaction, from which the screen computes rates and lag.
"""

from __future__ import annotations

import datetime as dt
import itertools
import random
import threading
import time
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from demo.written import Written
from tests.fixtures.load.workload import literal

if TYPE_CHECKING:
    from collections.abc import Callable

    from pymysql.cursors import Cursor

    from tests.fixtures.mariadb import MariaDb

DATABASE: Final = "shop"
CUSTOMERS: Final = 10_000
ORDERS: Final = 20_000
VISITS: Final = 8_000
IMAGES: Final = 40
TABLES: Final = (
    """customers (id INT UNSIGNED PRIMARY KEY, name VARCHAR(80) NOT NULL, email VARCHAR(120) NOT NULL, born DATE,
       credit DECIMAL(10,2) NOT NULL, preferences JSON, created TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6))""",
    """orders (id BIGINT UNSIGNED PRIMARY KEY, customer INT UNSIGNED NOT NULL, total DECIMAL(12,2) NOT NULL,
       status ENUM('new','paid','sent') NOT NULL, placed DATETIME(3) NOT NULL, note VARCHAR(200))""",
    """order_items (order_id BIGINT UNSIGNED, line TINYINT UNSIGNED, product SMALLINT UNSIGNED NOT NULL,
       quantity INT NOT NULL, price DECIMAL(10,2) NOT NULL, PRIMARY KEY (order_id, line))""",
    """product_images (product INT PRIMARY KEY, kind VARCHAR(20) NOT NULL, image LONGBLOB NOT NULL,
       changed TIMESTAMP(6) NOT NULL)""",
    """visits (id BIGINT UNSIGNED PRIMARY KEY, customer INT UNSIGNED NOT NULL, page VARCHAR(60) NOT NULL,
       at DATETIME(3) NOT NULL)""",
)
FILLED: Final = (
    f"""INSERT INTO customers (id, name, email, born, credit) SELECT seq, CONCAT('Zoë Ångström ', seq),
        CONCAT('user', seq, '@example.org'), '1940-01-01' + INTERVAL seq DAY, seq / 100 FROM seq_1_to_{CUSTOMERS}""",
    f"""INSERT INTO orders SELECT seq, 1 + seq MOD {CUSTOMERS}, seq / 8, 'sent', '2026-01-01' + INTERVAL seq MINUTE,
        IF(seq MOD 7, NULL, '🎁 gift, no bill please') FROM seq_1_to_{ORDERS}""",
    f"""INSERT INTO order_items SELECT 1 + seq DIV 2, 1 + seq MOD 2, seq MOD 60000, 1 + seq MOD 4, seq MOD 50000 / 100
        FROM seq_2_to_{2 * ORDERS - 1}""",
    f"""INSERT INTO visits SELECT seq, 1 + seq MOD {CUSTOMERS}, CONCAT('/product/', seq MOD 60000),
        '2026-11-01' + INTERVAL seq SECOND FROM seq_1_to_{VISITS}""",
    f"""INSERT INTO product_images SELECT seq, 'image/webp', LEFT(REPEAT(MD5(seq), 1900), 1000 * seq), NOW(6)
        FROM seq_1_to_{IMAGES}""",
)
"""Statements that fill the tables in the server."""
BIG_IMAGE_BYTES: Final = 17 << 20
"""Size in bytes of the large image: more than the 16 MB that one packet of the protocol can carry."""
IN_IMAGE_DOMAIN: Final = "SET gtid_domain_id = 1"
ALTER: Final = "ALTER TABLE customers ADD COLUMN points INT"
SWAP: Final = (
    "CREATE TABLE _orders_gho LIKE orders",
    "ALTER TABLE _orders_gho ADD COLUMN channel VARCHAR(20) NOT NULL DEFAULT 'web'",
    "INSERT INTO _orders_gho (id, customer, total, status, placed, note) SELECT * FROM orders",
    "RENAME TABLE orders TO _orders_del, _orders_gho TO orders",
    "DROP TABLE _orders_del",
)
"""Statements of a table swap as gh-ost does it, without concurrent writes."""
TRUNCATE: Final = "TRUNCATE TABLE visits"
TICK_S: Final = 0.1

FIRST_NAMES: Final = ("Ada", "Björn", "Chloé", "Dmitri", "Elif", "Fatou", "Grace", "Hiro", "Inés", "Jörg", "Zoë")
LAST_NAMES: Final = ("Lovelace", "Ångström", "Dupont", "Ivanov", "Yücel", "Diop", "Hopper", "田中", "Núñez", "O'Neil")


class Shop:
    """Shop with its writer. `fill()` makes the tables; `start(seconds)` writes in a thread until `done()`.

    The writer takes longer than `seconds` if some of the changes that a mirror has to follow are still due.
    """

    def __init__(self, server: MariaDb, *, transactions_per_second: int) -> None:
        self.server = server
        self.rate = transactions_per_second
        self.written = Written()
        self._chance = random.Random(20)
        self._open: dict[int, tuple[str, int]] = {}  # unsent orders by id: status, number of items
        self._next_order = ORDERS + 1
        self._next_visit = VISITS + 1
        self._customers = CUSTOMERS
        self._rows = 0  # row changes of the transactions that are being made
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._failure: BaseException | None = None

    def fill(self) -> int:
        """Make the tables with their first rows; return the number of rows."""
        self.server.sql(
            f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4",
            f"USE {DATABASE}",
            *(f"CREATE TABLE {definition}" for definition in TABLES),
        )
        self.server.sql(f"USE {DATABASE}", *FILLED[:-1])
        self.server.sql(f"USE {DATABASE}", IN_IMAGE_DOMAIN, FILLED[-1])
        return sum(int(str(self.server.value(f"SELECT COUNT(*) FROM {DATABASE}.{name}"))) for name in self.names)

    @property
    def names(self) -> list[str]:
        return [definition.split()[0] for definition in TABLES]

    def start(self, seconds: float) -> None:
        self._thread = threading.Thread(target=self._guarded, args=(seconds,), name="shop", daemon=True)
        self._thread.start()

    def done(self) -> bool:
        """Return True if the writer has finished; raise its error if it failed."""
        if self._failure:
            raise self._failure
        return self._thread is not None and not self._thread.is_alive()

    def stop(self) -> None:
        self._stop.set()
        if self._thread:
            self._thread.join()

    def _guarded(self, seconds: float) -> None:
        try:
            self._run(seconds)
        except BaseException as failure:  # noqa: BLE001  (raised again in done(), in the main thread)
            self._failure = failure

    def _run(self, seconds: float) -> None:
        orders = self.server.connect(database=DATABASE)
        images = self.server.connect(database=DATABASE, init_command=IN_IMAGE_DOMAIN)
        begin = time.monotonic()
        with orders, images, orders.cursor() as cursor, images.cursor() as image_cursor:
            special: list[tuple[float, Callable[[], None]]] = [
                (0.15, lambda: self._alter(cursor)),
                (0.30, lambda: self._big_image(image_cursor)),
                (0.45, lambda: self._swap(cursor)),
                (0.85, lambda: self._truncate(cursor)),
            ]
            tick = 0
            # On a slow machine, the time may end before all special changes are due.
            while (now := time.monotonic() - begin) < seconds or special:
                if self._stop.is_set():
                    break
                if special and now >= special[0][0] * seconds:
                    special.pop(0)[1]()
                if tick % 10 == 0:
                    self._send(
                        image_cursor, [[self._image(tick % 70 // 10 + 1, self._chance.randrange(1_000, 60_000))]]
                    )
                self._send(cursor, [self._transaction() for _ in range(max(1, round(self.rate * TICK_S)))])
                tick += 1
                time.sleep(max(0.0, begin + tick * TICK_S - time.monotonic()))

    def _send(self, cursor: Cursor, transactions: list[list[str]], told: str = "") -> None:
        """Send transactions in one round trip, and record the time before sending, so that no delay is understated."""
        sent, rows = time.time(), self._rows
        self._rows = 0
        sql = "; ".join(statement for transaction in transactions for statement in transaction)
        cursor.execute(f"BEGIN NOT ATOMIC {sql}; END")
        self._note(cursor, sent, rows=rows, transactions=len(transactions), told=told)

    def _note(self, cursor: Cursor, sent: float, *, rows: int = 0, transactions: int = 1, told: str = "") -> None:
        cursor.execute("SELECT @@last_gtid")
        (gtid,) = cursor.fetchone() or ("",)
        self.written.add(str(gtid), sent, rows=rows, transactions=transactions, told=told)

    # -- what a mirror has to follow -------------------------------------------------------------------------------

    def _alter(self, cursor: Cursor) -> None:
        sent = time.time()
        cursor.execute(ALTER)
        self._note(cursor, sent, told=ALTER)
        self.written.altered = True

    def _big_image(self, cursor: Cursor) -> None:
        told = f"one row with an image of {BIG_IMAGE_BYTES / 1e6:.1f} MB"
        self._send(cursor, [[self._image(0, BIG_IMAGE_BYTES)]], told)

    def _swap(self, cursor: Cursor) -> None:
        sent = time.time()
        for statement in SWAP:
            cursor.execute(statement)
        self._note(cursor, sent, told="orders swapped for a copy with one more column, as gh-ost does it")

    def _truncate(self, cursor: Cursor) -> None:
        sent = time.time()
        cursor.execute(TRUNCATE)
        self._note(cursor, sent, told=TRUNCATE)

    # -- transactions ----------------------------------------------------------------------------------------------

    def _transaction(self) -> list[str]:
        dice = self._chance.random()
        if dice < 0.05:
            return [self._new_customer()]
        if dice < 0.25:
            return [self._changed_customer()]
        if dice < 0.40:
            return [self._new_visit()]
        if dice < 0.70 or not self._open:
            return self._new_order()
        return self._next_step(self._chance.choice(list(itertools.islice(self._open, 50))))

    def _new_customer(self) -> str:
        self._customers += 1
        name = f"{self._chance.choice(FIRST_NAMES)} {self._chance.choice(LAST_NAMES)}"
        born = dt.date(1940, 1, 1) + dt.timedelta(self._chance.randrange(24_000))
        preferences = None if self._customers % 3 else '{"newsletter": true, "language": "nb"}'
        values = (self._customers, name, f"user{self._customers}@example.org", born, Decimal("0.00"), preferences)
        self._rows += 1
        columns = "id, name, email, born, credit, preferences"
        return f"INSERT INTO customers ({columns}) VALUES ({', '.join(map(literal, values))})"

    def _changed_customer(self) -> str:
        customer = self._chance.randint(1, self._customers)
        credit = Decimal(self._chance.randrange(1, 10_000)).scaleb(-2)
        more = ", points = IFNULL(points, 0) + 10" if self.written.altered else ""
        self._rows += 1
        return f"UPDATE customers SET credit = credit + {credit}{more} WHERE id = {customer}"

    def _new_visit(self) -> str:
        visit, self._next_visit = self._next_visit, self._next_visit + 1
        self._rows += 1
        customer, product = self._chance.randint(1, self._customers), self._chance.randint(1, 60_000)
        return f"INSERT INTO visits VALUES ({visit}, {customer}, '/product/{product}', NOW(3))"

    def _new_order(self) -> list[str]:
        order, self._next_order = self._next_order, self._next_order + 1
        lines = self._chance.randint(1, 5)
        items, total = [], Decimal(0)
        for line in range(1, lines + 1):
            price, quantity = Decimal(self._chance.randrange(100, 50_000)).scaleb(-2), self._chance.randint(1, 4)
            items.append(f"({order}, {line}, {self._chance.randint(1, 60_000)}, {quantity}, {price})")
            total += price * quantity
        note = literal(self._chance.choice((None, "leave at the door", "🎁 gift, no bill please")))
        self._open[order] = ("new", lines)
        self._rows += 1 + lines
        customer = self._chance.randint(1, self._customers)
        columns = "id, customer, total, status, placed, note"
        return [
            "START TRANSACTION",
            f"INSERT INTO orders ({columns}) VALUES ({order}, {customer}, {total}, 'new', NOW(3), {note})",
            f"INSERT INTO order_items VALUES {', '.join(items)}",
            "COMMIT",
        ]

    def _next_step(self, order: int) -> list[str]:
        status, lines = self._open[order]
        if status == "new" and self._chance.random() < 0.3:  # cancelled
            del self._open[order]
            self._rows += 1 + lines
            return [
                "START TRANSACTION",
                f"DELETE FROM order_items WHERE order_id = {order}",
                f"DELETE FROM orders WHERE id = {order}",
                "COMMIT",
            ]
        self._rows += 1
        if status == "new":
            self._open[order] = ("paid", lines)
            return [f"UPDATE orders SET status = 'paid' WHERE id = {order}"]
        del self._open[order]
        return [f"UPDATE orders SET status = 'sent' WHERE id = {order}"]

    def _image(self, product: int, size: int) -> str:
        # REPEAT in the statement avoids sending 17 MB of hexadecimal. The binlog carries the bytes.
        seed = self._chance.randbytes(64)
        image = f"LEFT(REPEAT({literal(seed)}, {size // 64 + 1}), {size})"
        self._rows += 1
        if product == 0:
            return f"INSERT INTO product_images VALUES ({product}, 'image/webp', {image}, NOW(6))"
        return f"UPDATE product_images SET image = {image}, changed = NOW(6) WHERE product = {product}"
