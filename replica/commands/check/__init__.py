"""Checks of servers and of this machine before a replica starts: queries, findings, report."""
