"""Running pipelines without a cluster: the in-memory log, the harness, a local broker."""
