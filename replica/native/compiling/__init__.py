"""Kernels on their way from Python to machine code: compiled, kept in files, loaded; interpreted meanwhile."""
