"""`python -m edgepack_runtime`: the same as `edgert`."""

from edgepack_runtime.cli.main import main

raise SystemExit(main())
