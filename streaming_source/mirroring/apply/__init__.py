"""A micro-batch into targets: the work on each table, errors of one table, and what Spark's MERGEs are set to."""
