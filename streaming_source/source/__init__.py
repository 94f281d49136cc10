"""The data source that Spark finds by its name, its streams and its batch reads."""
