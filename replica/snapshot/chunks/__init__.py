"""Chunk scheduling: which chunk is read next, which thread reads it, and which chunks a batch takes."""
