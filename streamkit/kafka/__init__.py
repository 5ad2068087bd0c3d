"""The broker: the only package that imports the Kafka client. The runtime speaks `kafka/ports.py`."""
