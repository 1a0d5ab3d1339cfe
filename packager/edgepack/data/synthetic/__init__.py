"""Generated rows, so that a first build needs neither a download nor a licence."""
