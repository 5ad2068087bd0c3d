"""One task: records, time and the end of a span become changed state, results and signals. Nothing waits here.

The worker (`runtime/`) drives it over Kafka; whoever has records of another origin can drive the same. The files, in the
order in which a record meets them:

the walk        ingest time_passes fetched chain origin heads emit span_end
a task          engine task positions identity clocks clock_state time_rules
event time      signal_checks
the output      routes limits
failures        failures failure_book failure_log careful letters singly outside
"""
