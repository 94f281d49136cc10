from __future__ import annotations

from replica.errors import ServerError
from replica.snapshot.check.facts import Cascade, ask_cascades, read_cascades
from tests.unit.handshake.steps import converse

# As MariaDB 10.5 and 11.8 print it, with the quote in a constraint's name as it is.
DEFINITION = """CREATE TABLE `lines` (
  `id` int(11) NOT NULL COMMENT '  CONSTRAINT `fake` FOREIGN KEY (`a`) REFERENCES `b` (`c`) ON DELETE CASCADE',
  `order_id` int(11) DEFAULT NULL,
  PRIMARY KEY (`id`),
  KEY `of_order` (`order_id`),
  CONSTRAINT `harmless` FOREIGN KEY (`order_id`) REFERENCES `orders` (`id`),
  CONSTRAINT `no_action` FOREIGN KEY (`order_id`) REFERENCES `orders` (`id`) ON DELETE NO ACTION ON UPDATE NO ACTION,
  CONSTRAINT `of_order` FOREIGN KEY (`order_id`, `id`) REFERENCES `orders` (`id`, `n`) ON DELETE CASCADE,
  CONSTRAINT `wei`rd)` FOREIGN KEY (`x`) REFERENCES `c``rm`.`cust)omers` (`y`) ON DELETE SET NULL ON UPDATE CASCADE
) ENGINE=InnoDB DEFAULT CHARSET=latin1 COLLATE=latin1_swedish_ci"""


def test_constraints_that_change_rows_are_found_with_their_parents() -> None:
    assert list(read_cascades(DEFINITION, "shop")) == [
        Cascade("of_order", ("shop", "orders"), ("ON DELETE CASCADE",), ("order_id", "id"), ("id", "n")),
        Cascade("wei`rd)", ("c`rm", "cust)omers"), ("ON DELETE SET NULL", "ON UPDATE CASCADE"), ("x",), ("y",)),
    ]


def test_a_quote_in_a_constraints_name_may_be_doubled() -> None:
    """As 10.11 prints it."""
    assert list(read_cascades(DEFINITION.replace("wei`rd)", "wei``rd)"), "shop")) == list(
        read_cascades(DEFINITION, "shop")
    )


def test_a_table_is_asked_for_by_its_quoted_name() -> None:
    said, found = converse(ask_cascades(("sh`op", "lines")), {"SHOW CREATE TABLE": [("lines", DEFINITION)]})
    assert said == ["SHOW CREATE TABLE `sh``op`.`lines`"]
    assert found is not None
    assert [one.constraint for one in found] == ["of_order", "wei`rd)"]


def test_a_definition_that_is_not_shown_is_not_taken_for_one_without_constraints() -> None:
    denied = ServerError("SHOW command denied", code=1142)
    assert converse(ask_cascades(("shop", "lines")), {"SHOW CREATE TABLE": denied})[1] is None
