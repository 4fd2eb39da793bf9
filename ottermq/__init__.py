"""OtterMQ: a message broker. AMQP 0.9.1 and the Kafka protocol are two doors into one log."""

__version__ = "0.1.0"
