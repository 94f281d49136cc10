"""The rules of a mirror's tables: which rows and columns a target has, and in which form.

`table_rules` takes the argument `rules` of `mirror()`, a mapping from patterns (as in `tables`) to rules, and returns
`TableRules`. A table has the rule of the first pattern that matches it. Unknown fields, values of the wrong type, a
column in two fields, and hashes without a key file raise a ConfigError that names the rule.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from replica.errors import ConfigError
from replica.schema.patterns import matcher, table_pattern
from replica.schema.text.naming import column_key
from streaming_source.schema.spark_names import spark_column_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.schema.known_tables import TableName
    from streaming_source.transforms.hashes import HashKey

Mode = Literal["current", "soft_delete", "history", "append_log"]
Constant: TypeAlias = "str | int | float | bool | None"

FIELDS: Final = ("mode", "leaveOut", "mask", "hash", "where", "rename")
_EXAMPLE: Final = 'For example rules={"shop.orders": {"leaveOut": ["secret"], "hash": ["email"]}}.'


@dataclass(frozen=True, slots=True)
class TableRule:
    """Rule of one table. Columns have their names in the table.

    Attributes:
        rename: the names of columns in the target, by their names in the table.
    """

    mode: Mode = "current"
    leave_out: tuple[str, ...] = ()
    mask: Mapping[str, Constant] = field(default_factory=dict)
    hash: tuple[str, ...] = ()
    where: str | None = None
    rename: Mapping[str, str] = field(default_factory=dict)

    @property
    def hides(self) -> bool:
        """Whether values of the table must not be seen in its target."""
        return bool(self.leave_out or self.mask or self.hash)

    @property
    def named(self) -> tuple[str, ...]:
        """Columns that the rule names, without those in its filter."""
        return tuple(dict.fromkeys((*self.leave_out, *self.mask, *self.hash, *self.rename)))


@dataclass(frozen=True, slots=True)
class TableRules:
    """Rules by pattern, in the given order."""

    given: tuple[tuple[str, TableRule], ...] = ()

    def of(self, name: TableName) -> TableRule:
        """Return the rule of a table: that of the first pattern that matches, or a rule that changes nothing."""
        pattern = self.pattern_of(name)
        return next((rule for given, rule in self.given if given == pattern), TableRule())

    def pattern_of(self, name: TableName) -> str | None:
        """Return the pattern whose rule a table has."""
        return next((pattern for pattern, _ in self.given if matcher([pattern]).fits(name)), None)


def table_rules(given: object, *, has_key: bool) -> TableRules:
    """Check and parse the argument `rules`.

    Args:
        given: the argument.
        has_key: whether there is a file with the key of hashes.

    Raises:
        ConfigError: a rule is invalid.
    """
    if given is None:
        return TableRules()
    if not isinstance(given, Mapping):
        raise ConfigError(f"rules is not a table of rules but a {type(given).__name__}.", hint=_EXAMPLE)
    rules = tuple((_pattern(pattern), _rule(str(pattern), fields)) for pattern, fields in given.items())
    hashed = next((pattern for pattern, rule in rules if rule.hash), None)
    if hashed is not None and not has_key:
        raise ConfigError(
            f"the rule {hashed} hashes columns, but there is no key.",
            hint="Name a file with at least 32 random bytes or characters: hashKeyFile.",
        )
    return TableRules(rules)


def _pattern(given: object) -> str:
    if not isinstance(given, str):
        raise ConfigError(f"the rule {given!r} is not for database.table.", hint=_EXAMPLE)
    try:
        return str(table_pattern(given))
    except ValueError as error:
        raise ConfigError(f"the rule {given!r} {error}.", hint=_EXAMPLE) from None


def _rule(pattern: str, given: object) -> TableRule:
    if not isinstance(given, Mapping):
        raise ConfigError(f"the rule {pattern} has no fields.", hint=_EXAMPLE)
    for name in given:
        if name not in FIELDS:
            near = difflib.get_close_matches(str(name), FIELDS, 1)
            raise ConfigError(
                f"the rule {pattern} has the unknown field {name!r}.",
                hint=f"Did you mean {near[0]}?" if near else f"Rules have {', '.join(FIELDS)}.",
            )
    where = given.get("where")
    if where is not None and (not isinstance(where, str) or not where.strip()):
        raise _wrong(pattern, "where", "a condition of Spark SQL, in quotes")
    rule = TableRule(
        mode=_mode(pattern, given.get("mode", "current")),
        leave_out=_names(pattern, "leaveOut", given.get("leaveOut", ())),
        mask=_constants(pattern, given.get("mask", {})),
        hash=_names(pattern, "hash", given.get("hash", ())),
        where=where,
        rename=_renames(pattern, given.get("rename", {})),
    )
    _check_claims(pattern, rule)
    return rule


def _mode(pattern: str, given: object) -> Any:
    if given not in get_args(Mode):
        raise _wrong(pattern, "mode", f"one of {', '.join(get_args(Mode))}")
    return given


def _names(pattern: str, name: str, given: object) -> tuple[str, ...]:
    valid = isinstance(given, (list, tuple)) and all(isinstance(one, str) and one for one in given)
    if not valid:
        raise _wrong(pattern, name, "a list of columns")
    return tuple(given)  # type: ignore[arg-type]  # checked above


def _constants(pattern: str, given: object) -> dict[str, Constant]:
    """Return the constants of masked columns. A list of columns, which a TOML file may have, means NULL for each."""
    if isinstance(given, (list, tuple)):
        return dict.fromkeys(_names(pattern, "mask", given))
    constants = (str, int, float, bool, type(None))
    if not isinstance(given, Mapping) or not all(
        isinstance(name, str) and name and isinstance(value, constants) for name, value in given.items()
    ):
        raise _wrong(pattern, "mask", "a constant for each column, or a list of columns to be NULL")
    return dict(given)


def _renames(pattern: str, given: object) -> dict[str, str]:
    if not isinstance(given, Mapping) or not all(
        isinstance(text, str) and text.strip() for pair in given.items() for text in pair
    ):
        raise _wrong(pattern, "rename", "a new name for each column")
    new = [spark_column_key(name) for name in given.values()]
    if len(set(new)) < len(new):
        raise _wrong(pattern, "rename", "a different name for each column")
    return dict(given)


def _check_claims(pattern: str, rule: TableRule) -> None:
    """Refuse a column that a field names twice, or that two fields claim."""
    claims: dict[str, Sequence[str]] = {"leaveOut": rule.leave_out, "mask": (*rule.mask,), "hash": rule.hash}
    claims["rename"] = (*rule.rename,)
    for name, columns in claims.items():
        if len({column_key(column) for column in columns}) < len(columns):
            raise ConfigError(f"the rule {pattern} names a column twice in {name}.", hint="Name it once.")
    for one, other in combinations(claims, 2):
        if other == "rename" and one != "leaveOut":
            continue  # a masked or hashed column may be renamed
        both = {column_key(column) for column in claims[one]} & {column_key(column) for column in claims[other]}
        if both:
            raise ConfigError(
                f"the rule {pattern} names {min(both)} in {one} and in {other}.", hint="Remove it from one of them."
            )


def _wrong(pattern: str, name: str, wanted: str) -> ConfigError:
    return ConfigError(f"the rule {pattern}: {name} is not {wanted}.", hint=_EXAMPLE)


# `kept_rule` and `rule_of_text` convert between a `TableRule` and its text, which is the same for the same rule and
# key. A table that is copied unchanged has no text. The mode has its own column in the control table. The text has the
# fingerprint of the key.


def kept_rule(rule: TableRule, key: HashKey | None) -> str | None:
    """Return the text of a rule; None if it changes nothing."""
    if not rule.named and rule.where is None:
        return None
    fields: dict[str, Any] = {
        "leaveOut": sorted(rule.leave_out),
        "mask": dict(rule.mask),
        "hash": sorted(rule.hash),
        "where": rule.where,
        "rename": dict(rule.rename),
        "key": key.fingerprint if key is not None and rule.hash else None,
    }
    return json.dumps({name: value for name, value in fields.items() if value}, sort_keys=True, ensure_ascii=False)


def rule_of_text(text: str | None) -> TableRule:
    fields = json.loads(text or "{}")
    return TableRule(
        leave_out=tuple(fields.get("leaveOut", ())),
        mask=fields.get("mask", {}),
        hash=tuple(fields.get("hash", ())),
        where=fields.get("where"),
        rename=fields.get("rename", {}),
    )


def fingerprint_of_text(text: str | None) -> str | None:
    """Return the fingerprint of the key in a text."""
    found = json.loads(text or "{}").get("key")
    return None if found is None else str(found)
