"""outside: step names used for failures outside any step: decode, watermarks, state, commit."""

# Before the chain: bytes to a value and its time.
DECODE = "decode"
# Behind it: what the user's watermark generator does, state that is written, results on their way to the broker.
WATERMARKS = "watermarks"
STATE = "state"
COMMIT = "commit"
