"""The daemon's HTTP side: server, guard, endpoints, metrics."""
