"""Audits of a mirror: which version of a target, which rows it has to hold, and what an audit leaves for it."""
