"""SQL text: tokens, names as MariaDB compares them, and a cursor over both."""
