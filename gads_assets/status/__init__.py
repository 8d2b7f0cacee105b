"""How every partition stands: what is shown, what is stale, what failed last, and the page that shows it."""
