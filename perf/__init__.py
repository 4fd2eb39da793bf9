"""Measurements: the log against raw C loops, the AMQP broker against RabbitMQ and two ceilings.

bench.py is the one entry point; what it starts, it stops.
"""
