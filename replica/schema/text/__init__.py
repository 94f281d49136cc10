"""SQL text: tokens, MariaDB's comparison of names, and a cursor over tokens."""
