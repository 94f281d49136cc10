"""Demo (`scripts/demo`): a small shop's changes, copied live from a private MariaDB server to Spark and audited."""
