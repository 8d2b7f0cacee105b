"""Which pointers are shown, in SQL that Spark and delta-rs both understand: the one place that says so."""


def current_sql(pointers: str, *, condition: str = "true", of: str = "customer_id, logical_date") -> str:
    """The highest row of each partition of this table for which `condition` holds; with `of`, of other groups."""
    return (
        f"SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY {of} ORDER BY state_version DESC, stage_id DESC) "
        f"AS place FROM {pointers} WHERE {condition}) AS placed WHERE place = 1"
    )


def shown_sql(pointers: str, *, condition: str, newest: str | None = None) -> str:
    """The current pointers that show their partition, where `condition` holds.

    Where `pointers` is an older version of the table and `newest` the one of today, runs that were retracted since are
    left out: those whose own highest pointer is a tombstone by now. One that was accepted again is not.
    """
    shown = f"SELECT * FROM ({current_sql(pointers, condition=condition)}) AS highest WHERE status = 'active'"
    if newest is None:
        return shown
    last_of_runs = current_sql(newest, condition=condition, of="customer_id, logical_date, run_id")
    return (
        f"SELECT shown.* FROM ({shown}) AS shown "
        f"LEFT ANTI JOIN (SELECT * FROM ({last_of_runs}) AS highest WHERE status = 'unavailable') AS retracted "
        "ON shown.customer_id = retracted.customer_id AND shown.logical_date = retracted.logical_date "
        "AND shown.run_id = retracted.run_id"
    )
