"""The relay directory: who may use it, who writes it, who reads it, and its published end."""
