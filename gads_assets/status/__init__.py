"""Is the data current, and if not, why: Dagster's events folded into ADR-026's rows, and what is told of them."""
