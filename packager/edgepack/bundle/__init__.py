"""The file of a bundle: archive, stub, signature, interpreters, golden rows, and the baseline to compare with."""
