"""edgepack: one recipe in, one gated offline bundle per target out."""

from edgepack_runtime import __version__ as __version__  # one for both sides
