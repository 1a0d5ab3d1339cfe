"""The subcommands of `edgepack`, one file each: parse, call, print. Slow imports are inside the functions."""
