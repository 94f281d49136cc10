"""Kernels that cut a dump into event groups, and the records that they share with Python."""
