"""The pages that our own command asks for, by their paths."""

HIDDEN = "/kafka/hidden"
UNFENCE = "/unfence"
