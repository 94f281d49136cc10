"""Kernels that write columns which every row of a batch has."""
