"""The database's roles: what each may do, and how a database comes to have them exactly so.

They are groups without a login of their own. A connection acts as one of them (see `connection.open_engine`), and a
login may do so once it is granted the role. The names come from `gads_role` in guards.sql.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from gads_assets.domain.roles import Role
from gads_assets.errors import StateStoreError
from gads_assets.state.tables import VERSION_TABLE

Privileges = frozenset[str]


def _privileges(*whole_table: str, update: Iterable[str] = ()) -> Privileges:
    return frozenset([*whole_table, *(f"UPDATE({column})" for column in update)])


_READ: Final = _privileges("SELECT")
_APPEND: Final = _privileges("SELECT", "INSERT")

_VERDICT: Final = (
    *("status", "current_run_id", "current_run_seq", "schema_version", "record_count", "error_message"),
    *("attempt_count", "updated_at", "version"),
)
_RETURN_TO_PENDING: Final = ("status", "error_message", "updated_at", "version")
_DEMOTION: Final = ("run_id", "state_version", "validation_id", "error_message", "started_at")
_SCHEDULE: Final = (
    *("purpose", "disposition", "next_run_at", "backoff_strategy", "reason", "baseline_attempts", "baseline_run_seq"),
    *("seen_attempts", "seen_run_seq", "fruitless_runs", "failing_since", "dispatches", "override_id", "backfill_id"),
    *("batch_id", "dispatched_at", "dagster_run_id", "scheduled_at"),
)
_ACCOUNT: Final = (
    *("name", "time_zone", "currency", "login_customer_id", "login_path"),
    *("status", "closed_at", "closed_reason"),
)
_PAUSE: Final = ("paused_until", "reason")
_CURSOR: Final = ("folded_until", "horizon", "horizon_at", "last_change", "last_end")
_FOLDED: Final = (
    *("last_materialization_run_id", "last_materialization_at", "last_materialization_code_version", "content_at"),
    *("last_attempt_run_id", "last_attempt_at", "last_attempt_outcome", "stale_since", "stale_reason_code"),
    *("row_version", "materialization_event", "attempt_event", "upstream_event", "upstream_changed_at"),
)

# By role and by what stands behind ON in a GRANT. The columns of a key are nobody's to change.
GRANTS: Final[Mapping[Role, Mapping[str, Privileges]]] = {
    Role.EXTRACTOR: {
        "SEQUENCE run_seq": _privileges("USAGE"),
        "customer": _READ,
        "extraction_attempt": _privileges("INSERT"),
        "run_lease": _privileges("SELECT", "INSERT", "DELETE", update=("lease_until",)),
        "partition_lease": _privileges("SELECT", "INSERT", update=("dagster_run_id",)),
        "retry_schedule": _privileges("SELECT", update=("dagster_run_id",)),
        "api_operations": _privileges("SELECT", "INSERT", update=("used",)),
        "api_pause": _privileges("SELECT", "INSERT", update=_PAUSE),
    },
    Role.VALIDATOR: {
        "partition_state": _privileges("SELECT", "INSERT", update=_VERDICT),
        "partition_attempt": _APPEND,
        "demotion": _privileges("SELECT", "INSERT", "DELETE", update=_DEMOTION),
        "extraction_attempt": _READ,
        "override_log": _READ,
    },
    Role.LOADER: {
        "partition_state": _READ,
        "partition_attempt": _READ,
        "demotion": _READ,
        "extraction_attempt": _READ,
        "override_log": _READ,
        "load_record": _APPEND,
    },
    Role.CONSUMER: {
        "partition_state": _READ,
        "demotion": _READ,
        "load_record": _READ,
        "customer": _READ,
        "api_operations": _READ,
        "api_pause": _READ,
        "partition_status": _READ,
    },
    Role.OPERATOR: {
        "partition_state": _privileges("SELECT", update=_RETURN_TO_PENDING),
        "partition_attempt": _READ,
        "demotion": _READ,
        "extraction_attempt": _READ,
        "load_record": _READ,
        "override_log": _APPEND,
        "retry_schedule": _privileges("SELECT", "INSERT", "DELETE", update=_SCHEDULE),
        "run_lease": _privileges("SELECT", "DELETE"),
        "partition_lease": _READ,
        "opened_day": _privileges("SELECT", "INSERT", update=("newest_day",)),
        "control_cursor": _privileges("SELECT", "INSERT", update=("reached_at",)),
        "backfill": _privileges("SELECT", "INSERT", update=("status", "taken_off", "changed_by", "changed_at")),
        "alert": _privileges("SELECT", "INSERT", update=("told_at", "over_at")),
        "customer": _privileges("SELECT", "INSERT", update=_ACCOUNT),
        "api_operations": _READ,
        "api_pause": _privileges("SELECT", "DELETE"),
        "partition_status": _READ,
    },
    Role.REPORTER: {
        "folded_status": _privileges("SELECT", "INSERT", update=_FOLDED),
        "status_cursor": _privileges("SELECT", "INSERT", update=_CURSOR),
        "asset_code": _privileges("SELECT", "INSERT", update=("code_version", "since")),
        "partition_status": _READ,
        "partition_state": _READ,
        "partition_attempt": _READ,
        "extraction_attempt": _READ,
        "demotion": _READ,
        "load_record": _READ,
        "retry_schedule": _READ,
        "customer": _READ,
    },
}

# Told apart by it: a copied or renamed database still grants rights to the roles of the one it was made from.
_MARK: Final = "gads_assets: a role of the state store"

_MEMBERSHIP: Final = "membership"  # in place of an object: to be in another role is to have its rights
_INSUFFICIENT_PRIVILEGE: Final = "42501"

_ROLES = text("""
    SELECT kind, name, to_regrole(name) IS NOT NULL AS exists
    FROM unnest(CAST(:kinds AS text[])) AS kind, quote_ident(gads_role(kind)) AS name
""")

_FOUND = text("""
    WITH ours AS (
        SELECT oid, quote_ident(rolname) AS name FROM pg_roles
        WHERE quote_ident(rolname) = ANY (CAST(:names AS text[])) OR shobj_description(oid, 'pg_authid') = :mark
    )
    SELECT r.name AS role, CASE c.relkind WHEN 'S' THEN 'SEQUENCE ' ELSE '' END || CAST(c.oid AS regclass) AS object,
        p.privilege_type AS privilege
    FROM pg_class AS c, aclexplode(c.relacl) AS p JOIN ours AS r ON r.oid = p.grantee
    UNION ALL
    SELECT r.name, CAST(CAST(a.attrelid AS regclass) AS text), p.privilege_type || '(' || quote_ident(a.attname) || ')'
    FROM pg_attribute AS a, aclexplode(a.attacl) AS p JOIN ours AS r ON r.oid = p.grantee
    UNION ALL
    SELECT r.name, 'SCHEMA ' || quote_ident(n.nspname), p.privilege_type
    FROM pg_namespace AS n, aclexplode(n.nspacl) AS p JOIN ours AS r ON r.oid = p.grantee
    UNION ALL
    SELECT r.name, :membership, CAST(CAST(m.roleid AS regrole) AS text)
    FROM pg_auth_members AS m JOIN ours AS r ON r.oid = m.member
    WHERE r.name = ANY (CAST(:names AS text[]))
""")

_TEMPORARY_TABLES_OF_ANYBODY = text("""
    SELECT quote_ident(datname) FROM pg_database AS d
    WHERE datname = current_database() AND pg_has_role(d.datdba, 'USAGE') AND EXISTS (
        SELECT FROM aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) AS p
        WHERE p.grantee = 0 AND p.privilege_type = 'TEMPORARY')
""")


@dataclass(frozen=True, order=True)
class Grant:
    """One privilege of one role; every member is written as in a GRANT."""

    role: str
    object: str
    privilege: str


def role_names(connection: Connection) -> dict[Role, str]:
    """As they are, or would be, in this database, and as SQL writes them."""
    return {Role(row.kind): row.name for row in connection.execute(_ROLES, {"kinds": list(Role)})}


def wanted_grants(connection: Connection) -> set[Grant]:
    schema = connection.execute(text("SELECT quote_ident(current_schema())")).scalar_one()
    everybody = {f"SCHEMA {schema}": _privileges("USAGE"), VERSION_TABLE: _READ}
    return {
        Grant(name, target, privilege)
        for role, name in role_names(connection).items()
        for target, privileges in {**GRANTS[role], **everybody}.items()
        for privilege in privileges
    }


def found_grants(connection: Connection) -> set[Grant]:
    """What the state store's roles may do here, those of another database of this server included."""
    names = list(role_names(connection).values())
    rows = connection.execute(_FOUND, {"names": names, "mark": _MARK, "membership": _MEMBERSHIP})
    return {Grant(row.role, row.object, row.privilege) for row in rows}


def ensure_roles(connection: Connection) -> None:
    """Creates the roles that are missing, and makes their privileges those of GRANTS, neither more nor fewer; nothing
    is written where that is so already. The login may act as each role that it creates."""
    login = connection.execute(text("SELECT quote_ident(current_user)")).scalar_one()
    create = f"ALTER ROLE {login} CREATEROLE, or run `gads db migrate` once with a login that has it"
    with _permitted(f"login {login} may not create the roles of the state store; an administrator's fix: {create}"):
        _create_missing(connection)
    refusal = (
        f"login {login} may not grant the state store's roles their rights; run `gads db migrate` with the login that "
        "owns its tables"
    )
    with _permitted(refusal):
        _forbid_temporary_tables(connection)
        wanted, found = wanted_grants(connection), found_grants(connection)
        if wanted == found:
            return
        for statement in [*_statements("REVOKE", found - wanted), *_statements("GRANT", wanted - found)]:
            _execute(connection, statement)
        if found_grants(connection) != wanted:  # granting what is another's to grant only draws a warning
            raise StateStoreError(refusal)


def _create_missing(connection: Connection) -> None:
    for row in connection.execute(_ROLES, {"kinds": list(Role)}).all():
        if not row.exists:
            _execute(connection, f"CREATE ROLE {row.name} NOLOGIN")
            _execute(connection, f"COMMENT ON ROLE {row.name} IS '{_MARK}'")
            # Since PostgreSQL 16 whoever creates a role may grant it, but not act as it.
            _execute(connection, f"GRANT {row.name} TO CURRENT_USER")


def _forbid_temporary_tables(connection: Connection) -> None:
    """Where the login may: without the database's owner the guards hold too, since they look in their schema first."""
    for database in connection.execute(_TEMPORARY_TABLES_OF_ANYBODY).scalars():
        _execute(connection, f"REVOKE TEMPORARY ON DATABASE {database} FROM PUBLIC")


def _statements(verb: str, grants: Iterable[Grant]) -> Iterator[str]:
    preposition = "TO" if verb == "GRANT" else "FROM"
    for (role, target), group in groupby(sorted(grants), key=lambda grant: (grant.role, grant.object)):
        privileges = ", ".join(grant.privilege for grant in group)
        on = "" if target == _MEMBERSHIP else f" ON {target}"
        yield f"{verb} {privileges}{on} {preposition} {role}"


def _execute(connection: Connection, statement: str) -> None:
    # Names may hold per cent signs, which are not parameters.
    connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


@contextmanager
def _permitted(refusal: str) -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) == _INSUFFICIENT_PRIVILEGE:
            raise StateStoreError(refusal) from error
        raise
