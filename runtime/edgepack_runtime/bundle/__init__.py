"""The bundle's formats and their verification: archive, manifest, signature, golden files, model configuration."""
