"""Row images: column values of a row before or after its change."""
