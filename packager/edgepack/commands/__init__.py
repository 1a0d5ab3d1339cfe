"""The subcommands of `edgepack`, one file each: parse, call, print. What is heavy is imported when a command runs."""
