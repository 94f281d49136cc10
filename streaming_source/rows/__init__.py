"""Work of a task: from a range of a binlog to the RecordBatches that Spark gets."""
