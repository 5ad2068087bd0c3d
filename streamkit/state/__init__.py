"""The memory of a key: stores of bytes, the overlay that a span writes to, typed views on top."""
