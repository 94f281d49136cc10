"""Connections with our own login: TLS, authentication, compression, and the session's settings."""
