"""The broker: the only package that imports the Kafka client. The runtime speaks `kafka/ports.py`.

the promises        ports transaction_port log shown_member missing
reading             reader broker_fetch fetch_buffer fetch_calls record_batches compression checksum careful wakeup
writing             writer delivery produce_calls transaction_calls links
the group           membership heartbeat assignor group_line group_calls preview
dead writers        transactions describe_calls
administration      admin admin_calls
the connection      connection client frames wire coordinator error_codes reconnects refusal outage
"""
