"""Effects of SQL statements on table definitions, applied in binlog order."""
