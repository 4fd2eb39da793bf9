"""This process and its host: its lock, its memory, what systemd is told."""
