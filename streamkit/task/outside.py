"""outside: the names under which failures outside of any step are told, in the place where a step's name stands."""

# Before the chain: bytes to a value and its time.
DECODE = "decode"
# Behind it: what the user's watermark generator does, state that is written, results on their way to the broker.
WATERMARKS = "watermarks"
STATE = "state"
COMMIT = "commit"
