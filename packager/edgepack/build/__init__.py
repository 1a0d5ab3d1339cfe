"""How a build runs: the stages of a recipe, the cache of their results, and the loops that build and plan."""
