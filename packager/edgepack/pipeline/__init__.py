"""How a build runs: the stage calls of a recipe, and the loops over them that build and plan."""
