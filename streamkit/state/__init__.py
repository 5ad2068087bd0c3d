"""The memory of a key: stores of bytes, the overlay that a span writes to, typed views on top.

views for users    views collection_views holder
of one task        task_state record_layer committed
kinds of state     kinds cells value_cells map_cells list_cells timers
bytes              spec keys map_keys row_groups values changelog
stores             store memory rocks rocks_store rocks_cursor sst
memory             budget
"""
