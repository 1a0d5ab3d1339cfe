"""edgepack: one recipe in, one gated offline bundle per target out."""

__version__ = "0.1.0"
