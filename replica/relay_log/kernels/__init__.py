"""Kernels that divide a dump into event groups, and the records that they share with Python."""
