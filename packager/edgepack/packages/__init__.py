"""Packages of a bundle: locks, wheels, what of them travels, licences, SBOM, and checks that they run on the target."""
