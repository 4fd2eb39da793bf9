"""Consumer groups: who is in them, what they have committed."""
