"""Faults for storage tests: a preloaded shim that records and fails calls (shim.py, rules.py),
and a simulator of what a disk may hold after the power went (powerloss.py)."""
