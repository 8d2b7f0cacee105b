"""Who uses the state store, each with no more rights than its work needs."""

from enum import StrEnum


class Role(StrEnum):
    EXTRACTOR = "extractor"
    """Numbers its runs and records its tries; sees and changes no state."""

    VALIDATOR = "validator"
    """The only one that gives verdicts."""

    LOADER = "loader"
    """Reads what may be published, and records what was."""

    CONSUMER = "consumer"
    """Reads what is safe to consume."""

    OPERATOR = "operator"
    """The control plane: schedules, registers customers, and returns a failure to pending, which is logged."""

    REPORTER = "reporter"
    """Folds Dagster's events into what is known of each partition, and reads all else to tell why."""
