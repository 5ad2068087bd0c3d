"""The walk of a record: files are the steps, `runtime/agent.py` is their order."""
