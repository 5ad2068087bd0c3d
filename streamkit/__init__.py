"""Stateful, exactly-once stream processing over Kafka, in plain Python."""
