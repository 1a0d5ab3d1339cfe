"""Generated rows for a first build without a download or a licence."""
