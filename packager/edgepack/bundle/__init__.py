"""Parts of a bundle and their assembly: archive, head, site-packages, wheels, golden files, SBOM, checks."""
