"""Low watermark of a snapshot: the binlog position up to which the engine has surely committed."""
