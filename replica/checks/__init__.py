"""Checks of servers and this machine before a replica starts: queries, findings, text."""
