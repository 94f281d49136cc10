"""Reconciliation of snapshot chunks with the changes that happened while they were read."""
