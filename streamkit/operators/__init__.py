"""What users mean by map, count or process: plain synchronous code that knows neither asyncio nor Kafka."""
