"""Output for a terminal or a log: progress, errors, tables."""
