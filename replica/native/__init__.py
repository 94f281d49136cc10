"""The things that numba needs from us: a writable kernel cache, raw memory access, and CRC32."""
