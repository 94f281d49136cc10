"""Connections that read tables, for threads that wait: login, session, packets and transports."""
