"""Metrics, intervals, verdicts and checks."""
