"""Recipe: YAML -> findings (file:line, reason, fix) -> frozen resolved recipe."""
