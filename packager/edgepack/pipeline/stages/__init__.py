"""The stages of a build, one file each: a function of its recipe section, its inputs and an output folder."""
