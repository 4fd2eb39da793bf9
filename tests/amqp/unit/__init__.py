"""AMQP's rules in Python (amqp/), on an engine that only notes what it is told."""
