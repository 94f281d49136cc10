"""Targets that begin, or begin again: the tables of the server, their rules, requests to read them again."""
