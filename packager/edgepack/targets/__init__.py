"""Targets: profiles of devices as data, profiles from probes, and what this machine can run."""
