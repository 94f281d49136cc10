"""What Spark's source process on the driver does: micro-batches over a relay log."""
