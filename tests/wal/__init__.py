"""The proof of the store, through its Python face."""
