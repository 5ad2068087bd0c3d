"""Snapshots: the state of a pipeline as files that outlive it, and starting from them. No broker, and no event loop.

where they are kept    store folder memory layout
what they say          manifest manifest_file
rows of state          rows_file export seed
event time             times
for people             listing
"""
