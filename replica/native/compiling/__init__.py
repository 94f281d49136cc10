"""Compilation of kernels to machine code: compiled, kept in files, loaded, and interpreted until then."""
