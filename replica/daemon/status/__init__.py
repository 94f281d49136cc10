"""Status record of the daemon: its creation, its file, its verdict and its page."""
