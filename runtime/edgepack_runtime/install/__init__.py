"""The install transaction: prefix, activation, recovery, rollback, receipts, trust."""
