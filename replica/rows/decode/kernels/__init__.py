"""Kernels that decode rows events into columns."""
