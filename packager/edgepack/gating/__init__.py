"""Gates on this machine and on devices over SSH: results, receipts, the exit code of several."""
