"""Bytes to nouns and back: how values, keys and state become bytes."""
