"""Families of column types: how each is stored, read and named."""
