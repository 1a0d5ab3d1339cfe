"""The labelled rows: reading, checks, statistics, samples; drafts of recipes and synthetic rows in folders below."""
