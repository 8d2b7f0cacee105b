"""Values and decisions. Standard library only: no clock, no session, no database."""
