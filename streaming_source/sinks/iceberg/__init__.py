"""Iceberg tables: catalogs, columns, data files and snapshots, read and written by PyIceberg without a jar."""
