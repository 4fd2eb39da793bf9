"""The admin port: HTTP for operators and their tools."""
