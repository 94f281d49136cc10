"""Row changes of the relay log as images before and after, by key."""
