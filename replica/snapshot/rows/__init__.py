"""Encode rows of a SELECT as row images of the binlog, with the key at which chunks are cut."""
