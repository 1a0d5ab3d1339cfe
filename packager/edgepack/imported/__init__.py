"""Stages of models that edgepack did not train: examples and graphs with a handler, and classifiers of texts."""
