"""What a task does: a range of a binlog -> the RecordBatches that Spark gets."""
