"""Targets: what a bundle is built for, the wheels it carries, what is in them, the bill of materials."""
