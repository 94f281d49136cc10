"""Definitions of tables: what CREATE and ALTER make of them."""
