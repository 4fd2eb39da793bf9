"""OtterMQ: a message broker. AMQP 0.9.1 and the Kafka protocol over one log."""

__version__ = "0.1.0"
