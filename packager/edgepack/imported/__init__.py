"""Stages of models that edgepack did not train: examples and graphs with an adapter, and classifiers of texts."""
