"""Audits of a mirror: the target version to compare, the rows that a target has to hold, and the records of audits."""
