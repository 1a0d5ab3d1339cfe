"""ERNIE classifiers: networks, batches, predictions, checkpoints of other formats, width pruning, export."""
