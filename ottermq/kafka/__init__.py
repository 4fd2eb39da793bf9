"""The Kafka door: the protocol of Apache Kafka's clients."""
