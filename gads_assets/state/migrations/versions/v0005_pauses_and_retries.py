"""The operator may lift a pause, and failed extractions are found by when they are worth another try.

The right is set after every migration, by `roles.ensure_roles`.
"""

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.execute("CREATE INDEX extraction_attempt_retry_at ON extraction_attempt (retry_at) WHERE retry_at IS NOT NULL")
