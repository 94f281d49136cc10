"""A small shop's changes, from a private MariaDB into Spark, shown live and proven at the end: `scripts/demo`."""
