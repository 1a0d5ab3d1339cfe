"""Helpers that know nothing of recipes or bundles: hashing, text, encodings, hardware, processes."""
