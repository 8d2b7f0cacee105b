"""The operator may lift a pause.

Rights are set after every migration, by `roles.ensure_roles`; this one changes nothing else. It has a number so that a
database without the right is found to be older, and the fix named.
"""

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    pass
