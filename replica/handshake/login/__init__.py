"""Connections with a login of their own: TLS, authentication, compression, and the session's settings."""
