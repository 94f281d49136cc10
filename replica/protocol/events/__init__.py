"""Event bytes to event values: one file a kind of event, and the one function that decodes them all."""
