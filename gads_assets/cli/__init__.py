"""`gads`, the command line: it reads settings, calls one function of a lower layer, and prints."""
