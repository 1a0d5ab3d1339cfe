"""Labelled rows: reading, checks, statistics, samples; drafts of recipes and synthetic rows in subfolders."""
