"""The live side: one replica from its first connection on, and inside another program."""
