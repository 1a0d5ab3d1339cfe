"""The tasks of the build: how rows are read, what a model learns of them, and with which loss. One file a task."""
