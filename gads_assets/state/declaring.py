"""What the declarations of tables share: their register, the names of constraints, a partition's key."""

from datetime import date

from sqlalchemy import CheckConstraint, Column, Date, MetaData, Text

KEY_COLUMNS = ("source", "customer_id", "query_name", "logical_date")

ULID = "'^[0-7][0-9A-HJKMNP-TV-Z]{25}$'"

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "fk": "%(table_name)s_%(referred_table_name)s_fkey",
        "ck": "%(table_name)s_%(constraint_name)s_check",
    }
)


def key_columns() -> list[Column[str] | Column[date]]:
    return [
        Column("source", Text, nullable=False),
        Column("customer_id", Text, nullable=False),
        Column("query_name", Text, nullable=False),
        Column("logical_date", Date, nullable=False),
    ]


def check(name: str, condition: str) -> CheckConstraint:
    return CheckConstraint(condition, name=name)


def key_checks() -> list[CheckConstraint]:
    return [
        check("source", "source <> ''"),
        check("customer_id", "customer_id ~ '^[0-9]{10}$'"),
        check("query_name", "query_name <> ''"),
    ]
