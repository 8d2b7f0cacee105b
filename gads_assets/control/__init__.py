"""Which partitions run, and when; and what an operator may do about it."""
