"""The verb `serve`: a model over HTTP, for other programs on the device and for people who want to try it.

`settings` and `systemd` need nothing but the standard library; the rest needs starlette, uvicorn and
prometheus_client, which are in bundles of recipes with `serve: true`. Other verbs import nothing of this folder, so
that they start faster.

A request passes `middleware` (access, request id, log, metrics) -> `app` (routes) -> `requests`, or `kserve` with
`kserve_models` (parsing) -> `batcher` (one queue) -> the predictor in a thread.
"""
