"""Queries to a primary: its prerequisites, its progress, its catalog, its dump threads."""
