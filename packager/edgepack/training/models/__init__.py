"""ERNIE classifiers: networks, batches, predictions, checkpoints of other formats, pruning, export."""
