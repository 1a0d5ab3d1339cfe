"""The verb `serve`: a model over HTTP, for other programs on the device and for people who want to try it.

`settings`, `systemd` and `notify` need nothing but the standard library; the rest needs starlette, uvicorn and
prometheus_client, which travel in bundles whose recipe says `serve: true`. Nothing here is imported unless something
is to be served, so that no other verb starts later for it.

A request's way: `gatekeeper` (who may ask, request id, log, metrics) -> `app` (routes) -> `asking` or `kserve` (what is
asked) -> `batcher` (one queue for all) -> the predictor in a thread.
"""
