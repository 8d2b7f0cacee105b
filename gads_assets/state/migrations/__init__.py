"""Alembic's folder, used from the package: no alembic.ini, no current directory."""
