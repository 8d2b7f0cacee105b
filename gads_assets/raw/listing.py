"""Every sealed run of a source, found by looking."""

from collections.abc import Iterator

from upath import UPath

from gads_assets.domain.keys import CustomerId, PartitionKey, RunId, parse_logical_date
from gads_assets.raw.layout import SEAL, Entry, read_entry
from gads_assets.raw.sink import RawSink
from gads_assets.raw.walking import all_below, answering, entries_of, is_customer, is_day


def sealed_runs(sink: RawSink, source: str) -> Iterator[tuple[PartitionKey, RunId]]:
    """In order of key and run. No more is held at a time than one customer has."""
    with answering(sink.root):
        for customer, is_folder in sorted(entries_of(sink.root / source)):
            if is_folder and is_customer(customer):
                yield from sorted(_of_customer(sink.root / source / customer, source, CustomerId(customer)))


def _of_customer(folder: UPath, source: str, customer_id: CustomerId) -> Iterator[tuple[PartitionKey, RunId]]:
    for parts, _ in all_below(folder):
        match parts:
            case (query_name, day, name, last) if last == SEAL and is_day(day):
                ours = read_entry(name)
                if ours and ours[0] is Entry.RUN:
                    key = PartitionKey(
                        source=source,
                        customer_id=customer_id,
                        query_name=query_name,
                        logical_date=parse_logical_date(day),
                    )
                    yield key, ours[1]
            case _:
                pass
