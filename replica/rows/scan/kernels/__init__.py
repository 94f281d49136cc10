"""Kernels that scan events without decoding rows."""
