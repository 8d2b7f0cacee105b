"""One file per change of schema, each frozen once released and forward only."""
