"""The command line of a bundle, of an installed release, and of `edgert`."""
