"""`edgepack init`: a data file of unknown form becomes a commented recipe and three splits."""
