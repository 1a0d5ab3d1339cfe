"""A process of its own for graphs that a user brought: which operators they may have, and what the process may do."""
