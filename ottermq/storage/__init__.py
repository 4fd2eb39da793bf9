"""What the broker does with its log: opened, recovered, retained, held."""
