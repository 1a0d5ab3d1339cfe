"""Drafts of recipes (`edgepack init`) from data files of unknown form."""
