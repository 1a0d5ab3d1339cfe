"""The interpreter that a bundle carries: of Debian's packages, or a build of the user's own."""
