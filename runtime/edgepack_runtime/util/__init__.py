"""Helpers that know nothing of bundles: durable files, hashing, texts, locks, progress."""
