"""Iceberg tables as targets, written through PyIceberg without a jar in the JVM."""
