"""Client/server protocol: packets, login, commands, results, prepared statements."""
