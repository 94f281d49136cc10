"""Foundations of kernels: compilation, raw memory access, and CRC32."""
