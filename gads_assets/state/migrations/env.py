"""Run by Alembic, on the connection that `migrate` hands over."""

from alembic import context

from gads_assets.state.tables import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
)
# The transaction is the caller's: every step and the version row commit together, or none does.
context.run_migrations()
