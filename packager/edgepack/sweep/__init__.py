"""Sweep: the candidates of a search as tasks on this machine, a Ray cluster or a Slurm cluster."""
