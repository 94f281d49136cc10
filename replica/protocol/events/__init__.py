"""Decoders of binlog events, one module for each kind of event, and `decode`, which calls them."""
