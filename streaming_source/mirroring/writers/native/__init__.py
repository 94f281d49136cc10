"""Changes that tasks write into Delta tables themselves, by delta-rs: no MERGE of Spark's, no row through the JVM."""
