"""The documents that both sides read and write, each described once as frozen dataclasses."""
