"""The rule of a target as text in the control table.

`kept_rule` and `rule_of_text` convert between a `TableRule` and its text, which is the same for the same rule and key.
A table that is copied unchanged has no text. The mode has its own column in the control table. The text has the
fingerprint of the key.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from streaming_source.transforms.table_rules import TableRule

if TYPE_CHECKING:
    from streaming_source.transforms.hash_key import HashKey


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
