"""The admin door: HTTP for operators and their tools."""
