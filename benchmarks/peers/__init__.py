"""What `benchmarks/peers.py` compares: a module for each backend of the same model, and what drives them.

`registry.py` lists the backends. A module such as `optimum.py` makes its files of a model (`prepare`) and opens one
(`open_model`); `worker.py` runs one of them in a process of its own, in the environment that has what it imports, and
`process.py` asks it. `source.py` tells where the weights and texts that all share lie; `build.py` makes them.
"""
