"""The shop: its tables, and a writer that places orders, pays, ships, cancels and changes its mind, at a steady rate.

In: a running server. Out: committed transactions in two GTID domains (orders in 0, product images in 1), half-way an
ALTER TABLE, once an image over 16 MB, which the protocol has to split over packets. The writer knows how many row
changes it committed and when each transaction was, which is what the proof and the lag on the screen are measured with.
"""

from __future__ import annotations

import datetime as dt
import itertools
import random
import threading
import time
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

from tests.fixtures.workload import literal

if TYPE_CHECKING:
    from tests.fixtures.mariadb import MariaDb

DATABASE = "shop"
KEYS = {
    "customers": ("id",),
    "orders": ("id",),
    "order_items": ("order_id", "line"),
    "product_images": ("product",),
}
TABLES = (
    """customers (id INT UNSIGNED PRIMARY KEY, name VARCHAR(80) NOT NULL, email VARCHAR(120) NOT NULL, born DATE,
       credit DECIMAL(10,2) NOT NULL, preferences JSON, created TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6))""",
    """orders (id BIGINT UNSIGNED PRIMARY KEY, customer INT UNSIGNED NOT NULL, total DECIMAL(12,2) NOT NULL,
       status ENUM('new','paid','sent') NOT NULL, placed DATETIME(3) NOT NULL, note VARCHAR(200))""",
    """order_items (order_id BIGINT UNSIGNED, line TINYINT UNSIGNED, product SMALLINT UNSIGNED NOT NULL,
       quantity INT NOT NULL, price DECIMAL(10,2) NOT NULL, PRIMARY KEY (order_id, line))""",
    """product_images (product INT PRIMARY KEY, kind VARCHAR(20) NOT NULL, image LONGBLOB NOT NULL,
       changed TIMESTAMP(6) NOT NULL)""",
)
DDL = f"ALTER TABLE {DATABASE}.customers ADD COLUMN points INT"
BIG_IMAGE_BYTES = 17 << 20
"""Over the 16 MB that one packet of the protocol can carry."""
TICK_S = 0.1
FIRST_CUSTOMERS = 20
IN_IMAGE_DOMAIN = "SET gtid_domain_id = 1"
MOST_CUSTOMERS = 2_000

FIRST_NAMES = ("Ada", "Björn", "Chloé", "Dmitri", "Elif", "Fatou", "Grace", "Hiro", "Inés", "Jörg", "Zoë")
LAST_NAMES = ("Lovelace", "Ångström", "Dupont", "Ivanov", "Yücel", "Diop", "Hopper", "田中", "Núñez", "O'Neil")


@dataclass
class Written:
    """The rows that the writer has committed so far; the screen reads it while it grows."""

    rows: int = 0
    transactions: int = 0
    ddl: bool = False
    big_image: bool = False
    sent_at: list[tuple[int, float]] = field(default_factory=list)
    """Last sequence number (domain 0) of each tick's transactions, and the clock's time when they were sent: no later
    than their commits, so delays are rather over- than understated."""


class Shop:
    """`create()` makes the tables; `start(seconds)` writes in a thread of its own until `done()`.

    That is later than asked for where the large image and the ALTER TABLE are still to come.
    """

    def __init__(self, server: MariaDb, *, orders_per_second: int) -> None:
        self.server = server
        self.rate = orders_per_second
        self.written = Written()
        self._chance = random.Random(20)
        self._orders: dict[int, tuple[str, int]] = {}  # open orders: status, number of items
        self._next_order = 1
        self._customers = 0
        self._images: set[int] = set()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._failure: BaseException | None = None

    def create(self) -> str:
        """Make the tables; return the GTID position behind that, where the stream starts."""
        self.server.sql(
            f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4",
            *(f"CREATE TABLE {DATABASE}.{definition}" for definition in TABLES),
        )
        return self.server.gtid_binlog_pos()

    def open(self) -> None:
        """Write the first rows: customers, so that orders find some, and one image."""
        statements = [self._new_customer() for _ in range(FIRST_CUSTOMERS)]
        self.server.sql(f"USE {DATABASE}", *statements)
        self.server.sql(f"USE {DATABASE}", IN_IMAGE_DOMAIN, self._image(1, 50_000))

    def start(self, seconds: float) -> None:
        self._thread = threading.Thread(target=self._guarded, args=(seconds,), name="shop", daemon=True)
        self._thread.start()

    def done(self) -> bool:
        """Tell whether the writer has finished; raise what it failed with."""
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
        position = dict(gtid.split("-")[::2] for gtid in self.server.gtid_binlog_pos().split(","))
        sequence = int(position["0"])
        orders = self.server.connect(database=DATABASE)
        images = self.server.connect(database=DATABASE, init_command=IN_IMAGE_DOMAIN)
        begin = time.monotonic()
        with orders, images, orders.cursor() as cursor, images.cursor() as image_cursor:
            tick = 0
            # A machine that stalls may be past its time before either was due.
            while (now := time.monotonic() - begin) < seconds or not (self.written.ddl and self.written.big_image):
                if self._stop.is_set():
                    break
                if not self.written.ddl and now > seconds * 0.5:
                    cursor.execute(DDL)
                    self.written.ddl = True
                    sequence += 1
                if not self.written.big_image and now > seconds * 0.3:
                    image_cursor.execute(self._image(0, BIG_IMAGE_BYTES))
                    self.written.big_image = True
                elif tick % 10 == 0:
                    image_cursor.execute(self._image(tick % 70 // 10 + 1, self._chance.randrange(1_000, 60_000)))
                transactions = [self._transaction() for _ in range(max(1, round(self.rate * TICK_S)))]
                sql = "; ".join(statement for transaction in transactions for statement in transaction)
                sequence += len(transactions)
                self.written.sent_at.append((sequence, time.time()))
                cursor.execute(f"BEGIN NOT ATOMIC {sql}; END")  # one round trip, many transactions
                self.written.transactions += len(transactions)
                tick += 1
                time.sleep(max(0.0, begin + tick * TICK_S - time.monotonic()))

    # -- transactions ----------------------------------------------------------------------------------------------

    def _transaction(self) -> list[str]:
        dice = self._chance.random()
        if dice < 0.15 and self._customers < MOST_CUSTOMERS:
            return [self._new_customer()]
        if dice < 0.25:
            return [self._changed_customer()]
        if dice < 0.65 or not self._orders:
            return self._new_order()
        return self._next_step(self._chance.choice(list(itertools.islice(self._orders, 50))))

    def _new_customer(self) -> str:
        self._customers += 1
        name = f"{self._chance.choice(FIRST_NAMES)} {self._chance.choice(LAST_NAMES)}"
        born = dt.date(1940, 1, 1) + dt.timedelta(self._chance.randrange(24_000))
        preferences = None if self._customers % 3 else '{"newsletter": true, "language": "nb"}'
        values = (self._customers, name, f"user{self._customers}@example.org", born, Decimal("0.00"), preferences)
        self.written.rows += 1
        columns = "id, name, email, born, credit, preferences"
        return f"INSERT INTO customers ({columns}) VALUES ({', '.join(map(literal, values))})"

    def _changed_customer(self) -> str:
        customer = self._chance.randint(1, self._customers)
        credit = Decimal(self._chance.randrange(1, 10_000)).scaleb(-2)
        more = ", points = IFNULL(points, 0) + 10" if self.written.ddl else ""
        self.written.rows += 1
        return f"UPDATE customers SET credit = credit + {credit}{more} WHERE id = {customer}"

    def _new_order(self) -> list[str]:
        order, self._next_order = self._next_order, self._next_order + 1
        lines = self._chance.randint(1, 5)
        items, total = [], Decimal(0)
        for line in range(1, lines + 1):
            price, quantity = Decimal(self._chance.randrange(100, 50_000)).scaleb(-2), self._chance.randint(1, 4)
            items.append(f"({order}, {line}, {self._chance.randint(1, 60_000)}, {quantity}, {price})")
            total += price * quantity
        note = literal(self._chance.choice((None, "leave at the door", "🎁 gift, no bill please")))
        self._orders[order] = ("new", lines)
        self.written.rows += 1 + lines
        customer = self._chance.randint(1, self._customers)
        return [
            "START TRANSACTION",
            f"INSERT INTO orders VALUES ({order}, {customer}, {total}, 'new', NOW(3), {note})",
            f"INSERT INTO order_items VALUES {', '.join(items)}",
            "COMMIT",
        ]

    def _next_step(self, order: int) -> list[str]:
        status, lines = self._orders[order]
        if status == "new" and self._chance.random() < 0.3:  # cancelled
            del self._orders[order]
            self.written.rows += 1 + lines
            return [
                "START TRANSACTION",
                f"DELETE FROM order_items WHERE order_id = {order}",
                f"DELETE FROM orders WHERE id = {order}",
                "COMMIT",
            ]
        self.written.rows += 1
        if status == "new":
            self._orders[order] = ("paid", lines)
            return [f"UPDATE orders SET status = 'paid' WHERE id = {order}"]
        del self._orders[order]
        return [f"UPDATE orders SET status = 'sent' WHERE id = {order}"]

    def _image(self, product: int, size: int) -> str:
        # REPEAT keeps 17 MB of hexadecimal off our own wire; the binlog carries the bytes.
        seed = self._chance.randbytes(64)
        image = f"LEFT(REPEAT({literal(seed)}, {size // 64 + 1}), {size})"
        values = f"({product}, 'image/webp', {image}, NOW(6))"
        if product in self._images:
            statement = f"UPDATE product_images SET image = {image}, changed = NOW(6) WHERE product = {product}"
        else:
            statement = f"INSERT INTO product_images VALUES {values}"
        self._images.add(product)
        self.written.rows += 1
        return statement
