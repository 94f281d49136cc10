"""The rule that a target was made by, as the control table keeps it.

In: a `TableRule`, and the key of its hashes. Out: a text, the same for the same rule and key, and no text for a table
that is copied as it is; and back. The mode is not in it: it has a column of its own. The key is there by its
fingerprint.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from streaming_source.ruling.table_rules import TableRule

if TYPE_CHECKING:
    from streaming_source.ruling.hash_key import HashKey


def kept_rule(rule: TableRule, key: HashKey | None) -> str | None:
    """Return the text of a rule; None where it asks for nothing."""
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
    """Return the rule that a text was made of."""
    fields = json.loads(text or "{}")
    return TableRule(
        leave_out=tuple(fields.get("leaveOut", ())),
        mask=fields.get("mask", {}),
        hash=tuple(fields.get("hash", ())),
        where=fields.get("where"),
        rename=fields.get("rename", {}),
    )


def fingerprint_of_text(text: str | None) -> str | None:
    """Return the fingerprint of the key that a text was made with."""
    found = json.loads(text or "{}").get("key")
    return None if found is None else str(found)
