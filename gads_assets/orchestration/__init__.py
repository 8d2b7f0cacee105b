"""The Dagster shell: it translates between Dagster and the steps, and decides nothing."""
