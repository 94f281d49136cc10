"""Cursor over the tokens of a statement, with the operations that DDL parsers need.

A method returns the requested token, or raises a SchemaError that names the actual token. The cursor never reads
further ahead than requested, so the head of a statement can be parsed even if its body is damaged.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from replica.errors import SchemaError
from replica.schema.text.naming import lowered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.schema.text.sql_tokens import Token


_MAX_DIGITS: Final = 10  # of any length in SQL


class Tokens:
    """Cursor over a statement's tokens. Keywords are in capitals; a quoted word is never a keyword."""

    def __init__(self, tokens: Iterator[Token], *, lower_case: bool = False) -> None:
        """Start before the first token.

        With `lower_case`, the server stores table names in lower case.
        """
        self._source = tokens
        self._lower = lower_case
        self.mode_unknown = False
        """Whether the sql_mode by which the server parsed the statement is unknown."""
        self._ahead: list[Token] = []
        self._kept: list[Token] | None = None

    def peek(self, ahead: int = 0) -> Token | None:
        while len(self._ahead) <= ahead:
            token = next(self._source, None)
            if token is None:
                return None
            self._ahead.append(token)
        return self._ahead[ahead]

    def take(self) -> Token:
        token = self.peek()
        if token is None:
            raise SchemaError("The statement ends too early.")
        del self._ahead[0]
        if self._kept is not None:
            self._kept.append(token)
        return token

    @contextmanager
    def keeping(self) -> Iterator[list[Token]]:
        """Yield a list that receives every token taken inside the block."""
        kept: list[Token] = []
        self._kept = kept
        try:
            yield kept
        finally:
            self._kept = None

    def sees(self, *keywords: str, ahead: int = 0) -> bool:
        """Return True if these words or symbols come next."""
        for place, wanted in enumerate(keywords, ahead):
            token = self.peek(place)
            if token is None or wanted != (token.text if token.kind == "symbol" else token.upper):
                return False
        return True

    def accept(self, *keywords: str) -> bool:
        """Take these words or symbols, if all of them come next."""
        if not self.sees(*keywords):
            return False
        for _ in keywords:
            self.take()
        return True

    def accept_any(self, *keywords: str) -> str:
        """Take one of these words or symbols and return it; '' if none comes next."""
        return next((keyword for keyword in keywords if self.accept(keyword)), "")

    def expect(self, *keywords: str) -> None:
        if not self.accept(*keywords):
            token = self.peek()
            raise SchemaError(f"{' '.join(keywords)} was expected before {token.text if token else 'the end'!r}.")

    def name(self) -> str:
        """Read an identifier, quoted or not."""
        token = self.take()
        if token.kind not in ("word", "name", "double"):
            raise SchemaError(f"A name was expected, not {token.text!r}.")
        return token.text

    def string(self) -> str:
        token = self.take()
        if token.kind not in ("string", "double"):
            raise SchemaError(f"A string was expected, not {token.text!r}.")
        return token.text

    def number(self) -> int:
        token = self.take()
        if not token.upper.isdecimal() or len(token.upper) > _MAX_DIGITS:
            raise SchemaError(f"A number was expected, not {token.text!r}.")
        return int(token.upper)

    def numbers(self) -> tuple[int, ...]:
        """Read `(5, 2)`; () if no parenthesis comes next."""
        if not self.accept("("):
            return ()
        found = [self.number()]
        while self.accept(","):
            found.append(self.number())
        self.expect(")")
        return tuple(found)

    def stored_name(self) -> str:
        """Read the name of a table or a database, as the server stores it."""
        name = self.name()
        return lowered(name) if self._lower else name

    def table_name(self, database: str) -> tuple[str, str]:
        """Read `table`, `database.table` or `.table`, as stored; `database` is the default database."""
        if self.accept("."):
            return database, self.stored_name()
        first = self.stored_name()
        return (first, self.stored_name()) if self.accept(".") else (database, first)

    def skip_parenthesis(self) -> None:
        """Skip `( … )`."""
        self.expect("(")
        depth = 1
        while depth:
            token = self.take()
            if token.kind == "symbol":
                depth += {"(": 1, ")": -1}.get(token.text, 0)

    def skip_item(self) -> None:
        """Skip to the next comma, to the parenthesis that closes the list, or to the end."""
        while self.peek() is not None and not self.sees(",") and not self.sees(")"):
            if self.sees("("):
                self.skip_parenthesis()
            else:
                self.take()

    @property
    def at_end(self) -> bool:
        return self.peek() is None or self.sees(";")
