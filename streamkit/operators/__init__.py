"""What users mean by map, count or process: plain synchronous code that knows neither asyncio nor Kafka.

what a step is   step fused
simple steps     stateless
state            keyed aggregators
code of users    process agent side misuse
stage ends       exchange
"""
