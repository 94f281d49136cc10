"""Planning of micro-batches over a relay log: the work of Spark's source process on the driver."""
