"""HTTP interface of the daemon: server, guard, endpoints, metrics."""
