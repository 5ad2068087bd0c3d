"""What a task counts, by name: committed with its clock, so that no crash changes a count."""

# Records read from source topics, and written to topics for others. Records of shuffles are neither.
RECORDS_IN = "records_in"
RECORDS_OUT = "records_out"
# Set aside by the error policy: dead letters, and what it says to skip.
DEAD_LETTERS = "dead_letters"
# Records that were late for all their windows, and windows that hold something.
LATE_RECORDS = "late_records"
OPEN_WINDOWS = "open_windows"
# Signals in shuffles that were not believed, and records there that were passed over.
DOUBTED_SIGNALS = "doubted_signals"
FOREIGN_RECORDS = "foreign_records"
