"""The work of Spark's source process on the driver: micro-batches over a relay log."""
