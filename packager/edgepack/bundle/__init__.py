"""What a bundle holds and how it is made: archive, head, site-packages, wheels, golden files, SBOM, checks."""
