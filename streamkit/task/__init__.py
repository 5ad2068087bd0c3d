"""One task: records, time and the end of a span become changed state, results and signals. Nothing waits here.

The worker (`runtime/`) drives it over Kafka; whoever has records of another origin can drive the same. The files, in the
order in which a record meets them:

the walk        fetched ingest align chain routes emit span_end
a task          task identity clocks time_rules counts
event time      hearsay
the output      limits
failures        failures failure_log careful letters singly
"""
