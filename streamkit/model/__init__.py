"""The nouns: plain frozen data that every other package speaks."""
