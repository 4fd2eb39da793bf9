"""This process and its host: its lock, its memory, its messages to systemd."""
