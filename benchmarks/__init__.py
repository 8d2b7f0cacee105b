"""Side-by-side measurements: what this project takes, beside a named peer that does the same on the same machine."""
