"""Blocking connections that read tables: login, session settings, packets and transports."""
