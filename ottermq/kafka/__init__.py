"""The Kafka server: the protocol of Apache Kafka's clients."""
