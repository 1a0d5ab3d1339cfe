"""The gate: accuracy, latency, load, memory and size against the limits of the manifest."""
