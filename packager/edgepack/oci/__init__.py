"""Container images from finished bundles, in the format of the Open Container Initiative."""
