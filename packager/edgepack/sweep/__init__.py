"""Sweep: the candidates of a search as tasks on this machine or a Ray cluster."""
