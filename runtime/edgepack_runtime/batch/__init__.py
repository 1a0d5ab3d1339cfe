"""Predictions for files: rows in, rows out, of any size, in order."""
