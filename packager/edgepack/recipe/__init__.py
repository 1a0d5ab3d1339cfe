"""Recipes: reading of YAML, findings (file:line, reason, fix), and the frozen resolved recipe."""
