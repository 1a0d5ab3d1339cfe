"""Helpers without knowledge of recipes and bundles: hashing, text, encodings, hardware, processes."""
