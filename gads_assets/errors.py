"""Every error this project raises on purpose.

    GadsError
    ├── SettingsError                 a GADS_* variable, or a file it names, cannot be used
    ├── SetupError                    this machine lacks something: Java, JARs, a free port, a writable home
    ├── CatalogError                  google_apis.yaml or a stored schema version is wrong
    │   ├── GaqlError                 a query's text is not GAQL, with the place
    │   ├── UnknownFieldError         a field or resource that the API version does not have
    │   └── CatalogFileError          the place in the catalog's files that is wrong
    ├── PartitionKeyError             a customer, day or query name that cannot name a partition
    │   └── DayNotOpenError           the account's day has not ended and settled yet
    ├── ActionRefusedError            what an operator asked for is refused or was not confirmed; nothing changed
    ├── ExtractionError               the Google Ads API did not give us the day
    │   ├── QuotaExhaustedError       wait `retry_after` seconds: everybody, or the account, as `scope` says
    │   ├── TransientApiError         the call may succeed when repeated, `retry_after` seconds later
    │   ├── CustomerUnavailableError  this account only: closed, suspended, or not ours
    │   ├── AuthenticationError       no account will work until the credentials are mended
    │   ├── QueryRefusedError         the API refuses the query itself
    │   ├── MissedSnapshotError       the day of a snapshot is over, and nobody can ask for it any more
    │   └── LostHistoryError          the database was lost or restored, and is not adopted yet
    ├── RawSinkError                  a run directory breaks the raw sink's contract
    │   ├── SealedRunError            writing into, sealing again, or removing what is sealed
    │   ├── RunNotFoundError          no sealed run of that id
    │   ├── BrokenSealError           the bytes differ from what the seal says
    │   ├── BrokenPayloadError        the bytes are as sealed, and are no gzip
    │   └── UnreadableRunError        the storage does not answer, which says nothing about the run
    ├── StateStoreError               the database refused or lost something
    │   ├── DatabaseUnavailableError  no server answers
    │   ├── TransitionError           a change of state that the contract forbids
    │   └── ScopeTakenError           another process has what one alone may have
    ├── BatchError                    the partitions that a run was asked for are another's, or done
    ├── AlertError                    the webhook did not take what it was told
    ├── LineageError                  the OpenLineage backend did not take an event
    └── WarehouseError                staging, pointers or reading
        ├── PublishRefusedError       state does not allow this partition to be published
        ├── StagedRowsError           what was staged differs from what was judged
        └── ReadError                 a query over published tables cannot be answered

Messages are one line: what was given, which rule it broke, what to do. `retryable` says whether the same call can
succeed later without anybody changing anything.
"""

from typing import ClassVar, Literal

QuotaScope = Literal["developer", "account"]
"""Whose quota it is: that of all our calls, or that of calls for one account."""


class GadsError(Exception):
    """Root of the tree; the command line shows its message and exits 1. Attempts are grouped by `error_class`."""

    retryable: ClassVar[bool] = False
    error_class: ClassVar[str] = "other"


class SettingsError(GadsError):
    pass


class SetupError(GadsError):
    pass


class CatalogError(GadsError):
    pass


class GaqlError(CatalogError):
    """`offset` is the character of the query's text at which reading stopped."""

    def __init__(self, message: str, *, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class UnknownFieldError(CatalogError):
    """`field` is the name as the query has it."""

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field


class CatalogFileError(CatalogError):
    """`key` is the dotted way to the value; `excerpt`, where there is one, is its line with a caret under the word."""

    def __init__(
        self, message: str, *, file: str, line: int | None = None, key: str = "", excerpt: str | None = None
    ) -> None:
        place = file if line is None else f"{file}:{line}"
        super().__init__(f"{place}: {key}: {message}" if key else f"{place}: {message}")
        self.file = file
        self.line = line
        self.key = key
        self.excerpt = excerpt


class PartitionKeyError(GadsError):
    error_class = "partition"


class DayNotOpenError(PartitionKeyError):
    retryable = True
    error_class = "day_not_open"


class ActionRefusedError(GadsError):
    pass


class ExtractionError(GadsError):
    """`customer_id` is the account that was asked."""

    error_class = "extraction"

    def __init__(self, message: str, *, customer_id: str) -> None:
        super().__init__(message)
        self.customer_id = customer_id


class QuotaExhaustedError(ExtractionError):
    retryable = True
    error_class = "quota"

    def __init__(self, message: str, *, customer_id: str, retry_after: float, scope: QuotaScope = "developer") -> None:
        super().__init__(message, customer_id=customer_id)
        self.retry_after = retry_after
        self.scope: QuotaScope = scope


class TransientApiError(ExtractionError):
    retryable = True
    error_class = "transient"

    def __init__(self, message: str, *, customer_id: str, retry_after: float = 5.0) -> None:
        super().__init__(message, customer_id=customer_id)
        self.retry_after = retry_after


class CustomerUnavailableError(ExtractionError):
    error_class = "customer"


class AuthenticationError(ExtractionError):
    error_class = "authentication"


class QueryRefusedError(ExtractionError):
    error_class = "query"


class MissedSnapshotError(ExtractionError):
    error_class = "missed_snapshot"


class LostHistoryError(ExtractionError):
    error_class = "lost_history"


class RawSinkError(GadsError):
    """`run_id` names the run directory concerned, where it is one."""

    error_class = "raw_sink"

    def __init__(self, message: str, *, run_id: str | None = None) -> None:
        super().__init__(message)
        self.run_id = run_id


class SealedRunError(RawSinkError):
    pass


class RunNotFoundError(RawSinkError):
    pass


class BrokenSealError(RawSinkError):
    pass


class BrokenPayloadError(RawSinkError):
    pass


class UnreadableRunError(RawSinkError):
    retryable = True


class StateStoreError(GadsError):
    pass


class DatabaseUnavailableError(StateStoreError):
    retryable = True


class TransitionError(StateStoreError):
    pass


class ScopeTakenError(StateStoreError):
    pass


class BatchError(GadsError):
    pass


class AlertError(GadsError):
    retryable = True


class LineageError(GadsError):
    retryable = True


class WarehouseError(GadsError):
    pass


class PublishRefusedError(WarehouseError):
    pass


class StagedRowsError(WarehouseError):
    pass


class ReadError(WarehouseError):
    pass


def error_classes() -> set[str]:
    """Every class that an attempt may be grouped under."""
    found, kinds = set(), [GadsError]
    while kinds:
        kind = kinds.pop()
        found.add(kind.error_class)
        kinds += kind.__subclasses__()
    return found
