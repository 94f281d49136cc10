"""The things that kernels need: a cache, raw memory access, and CRC32."""
