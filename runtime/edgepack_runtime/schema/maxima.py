"""The largest values that recipes, gates, `model.json` and the device allow: what one accepts, no other refuses."""

MAX_LABELS = 10_000  # a column with more different values does not hold labels; they fit into 16 bits
MAX_THREADS = 256  # of one prediction
MAX_TOKENS = 8192  # of an input
