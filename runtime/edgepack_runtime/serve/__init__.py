"""The verb `serve`: a model over HTTP, for other programs on the device and for people who want to try it.

`settings` and `systemd` need nothing but the standard library; the rest needs starlette, uvicorn and
prometheus_client, which travel in bundles whose recipe says `serve: true`. Nothing here is imported unless something
is to be served, so that no other verb starts later for it.

A request passes `middleware` (access, request id, log, metrics) -> `app` (routes) -> `requests` or `kserve` (parsing)
-> `batcher` (one queue) -> the predictor in a thread.
"""
