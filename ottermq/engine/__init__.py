"""The Python face of the C data plane: its calls and their types, its events."""
