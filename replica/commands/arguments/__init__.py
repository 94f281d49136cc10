"""Arguments that several commands take: options, places in the log, relay directories."""
