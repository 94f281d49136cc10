"""Kernels that convert values of one type."""
