"""The work of Spark's source process on the driver: planning micro-batches over a relay log."""
