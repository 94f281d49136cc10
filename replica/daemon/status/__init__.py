"""The daemon's status record: how it is made, kept in a file, judged and shown."""
