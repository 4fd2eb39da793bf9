"""The AMQP 0.9.1 door: methods, connection and channel rules, error codes."""
