"""Spool files: rows that wait for a batch, and a batch's rows encoded as binlog events."""
