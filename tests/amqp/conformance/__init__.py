"""AMQP as clients see it: real sockets, a real broker, ours or RabbitMQ (OTTERMQ_TEST_URL)."""
