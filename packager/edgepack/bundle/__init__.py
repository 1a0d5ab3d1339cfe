"""Parts of a bundle and their assembly: archive, stub, site-packages, wheels, golden files, SBOM, checks."""
