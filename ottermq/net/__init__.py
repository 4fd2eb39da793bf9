"""Sockets, TLS, and the connections that the engine sees without a socket."""
