"""Bytes to nouns and back: how values, keys and state become bytes.

a codec         codec values signals
checks          exact floats
types           annotations naming
"""
