"""The broker's use of its log: open, recover, retain, hold."""
