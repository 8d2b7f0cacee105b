"""Sealed extractions: run directories that are written once, sealed by metadata.json, and never changed."""
