"""Micro-batches as manifests, and the rows of one table in a micro-batch.

A manifest lists the tables and statements of each partition, without row values. Tasks decode the rows of a table
later, from the ranges of the relay log that the manifest names.
"""
