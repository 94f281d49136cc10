"""Row images before and after each change in the relay log, indexed by key."""
