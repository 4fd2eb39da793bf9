"""Measurements: the log beside raw C loops, the AMQP broker beside RabbitMQ and two ceilings.

bench.py is the one entry point; what it starts, it stops.
"""
