"""`gads emulator`: the Google Ads API on this machine."""

import os
import signal
from datetime import datetime
from typing import Annotated

import typer

from gads_assets.cli.output import JsonOption, print_json
from gads_assets.settings import read_settings


def emulator(
    *,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free port.")] = 0,
    fault: Annotated[
        list[str] | None, typer.Option("--fault", metavar="TEXT", help="A failure to inject; may be repeated.")
    ] = None,
    latency_ms: Annotated[int, typer.Option(min=0, help="Answer each call this much later.")] = 0,
    accounts: Annotated[
        int | None, typer.Option(min=1, max=5000, help="An agency of this many clients, under managers.")
    ] = None,
    today: Annotated[
        datetime | None,
        typer.Option(formats=["%Y-%m-%d"], help="Conversions are those counted by this day, and DURING ends with it."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Serve an emulated Google Ads API on loopback until interrupted.

    A failure is written kind@customer/resource/day, with * for any of the three and :n where a number is wanted:
    transient@2145550101/campaign/2024-06-01:2. Without --fault, those of GADS_EMULATOR_FAULTS, separated by ;

    \b
    transient             UNAVAILABLE, n times (1) a customer and resource
    internal              INTERNAL, n times (1)
    midstream_break       some rows, then a broken stream, n times (1)
    slow_stream           n seconds (1) between the messages of a stream
    latency               n milliseconds (50) before each answer; also latency:n
    quota                 RESOURCE_EXHAUSTED until n seconds (30) passed
    bad_auth              UNAUTHENTICATED, n times (always)
    customer_not_enabled, customer_suspended, permission_denied
                          the customer is refused, n times (always)
    duplicated_rows       the day's first n rows (1) come twice
    wrong_customer_rows   the day's first n rows (1) name another account
    wrong_day_rows        the day's first n rows (1) name a day not asked for
    truncated_day         the last n percent (50) of the day's rows are missing
    rows                  no failure: the day has n rows, 0 to 2000000
    """
    # gRPC and the API's messages take a second or two to import; --help and bad input need neither.
    from gads_assets.emulator.faults import parse_faults  # noqa: PLC0415

    settings = read_settings(os.environ)
    texts = fault or ([settings.emulator_faults] if settings.emulator_faults else [])
    faults = [parsed for text in texts for parsed in parse_faults(text)]

    # Not handlers: one that runs while the main thread is about to wait for it would wait for that thread, for ever.
    interrupts = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, interrupts)

    from gads_assets.emulator.accounts import ACCOUNTS, MANAGER_CUSTOMER_ID, made_up_accounts  # noqa: PLC0415
    from gads_assets.emulator.server import serve_emulator  # noqa: PLC0415

    with serve_emulator(
        home=settings.emulator_home,
        port=port,
        faults=faults,
        latency=latency_ms / 1000,
        accounts=made_up_accounts(accounts) if accounts else ACCOUNTS,
        today=today.date() if today else None,
        record_operations=True,
    ) as running:
        if as_json:
            document = {
                "endpoint": running.endpoint,
                "ca_path": str(running.ca_path),
                "login_customer_id": MANAGER_CUSTOMER_ID,
                "operations_path": str(running.operations_path),
            }
            print_json(document)
        else:
            typer.echo(f"The Google Ads API answers on {running.endpoint}; stop it with Ctrl-C. In another shell:")
            typer.echo(f"export GADS_GOOGLE_ADS_ENDPOINT={running.endpoint}")
        signal.sigwait(interrupts)
    typer.echo(f"stopped after {running.operations} operations", err=True)
