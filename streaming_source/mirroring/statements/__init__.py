"""DDL statements of the binlog: what each one changes in a target, and proofs that an ALTER keeps every value."""
