"""The work of a task: a range of a binlog -> the RecordBatches that Spark gets."""
