"""`tidemill timeline work`: a consumer that prints each message with its lateness and completes it."""

import asyncio
import signal
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.connection import Client
from tidemill.cli.durations import duration_ms
from tidemill.cli.options import Json
from tidemill.cli.output import remark, say, show_json, text_fields
from tidemill.cli.timeline_options import (
    CONNECT_TIMEOUT_MS,
    DEFAULT_ADDRESS,
    TIMEOUT_MS,
    Address,
    Name,
    grpc_settings,
    reached,
    shown_time,
    text_of,
)

if TYPE_CHECKING:
    from tidemill.client.timelines import AsyncLease

COMPLETIONS_MAX = 1_000


class LeaseOrderChoice(StrEnum):
    """The values of `--order`."""

    LEASE_END = "lease-end"
    DUE = "due"
    RANDOM = "random"


def work(
    name: Name,
    consumer_id: Annotated[str | None, typer.Option("--consumer-id", help="Id of this consumer.")] = None,
    rack: Annotated[str, typer.Option("--rack", help="Rack or zone of this consumer.")] = "",
    max_in_flight: Annotated[int, typer.Option("--max-in-flight", min=1, help="Messages held at a time.")] = 100,
    lease_ms: Annotated[
        int, typer.Option("--lease-ms", min=0, help="Length of a lease. 0: the timeline's default.")
    ] = 0,
    order: Annotated[
        LeaseOrderChoice, typer.Option("--order", help="Which of several due messages come first; see the examples.")
    ] = LeaseOrderChoice.LEASE_END,
    count: Annotated[int, typer.Option("--count", "-n", min=0, help="Stop after this many messages. 0: never.")] = 0,
    idle: Annotated[str | None, typer.Option("--idle", help="Stop after this time without a message: 5s.")] = None,
    address: Address = DEFAULT_ADDRESS,
    client: Client = None,
    as_json: Json = False,
) -> None:
    """Lease messages when they become due, print them with their lateness, and complete them.

    Example: tidemill timeline work reminders

    Example: tidemill timeline work reminders --order due    (a message that was leased before keeps its place)

    Orders: lease-end, as messages became available, by due time or end of the last lease; due, by due time; random.
    """
    from tidemill.client.timelines import AsyncTimeline

    settings = grpc_settings(address, client)
    done = 0

    async def run() -> None:
        nonlocal done
        if (itself := asyncio.current_task()) is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, itself.cancel)
        completions: set[asyncio.Task[None]] = set()
        idle_ms = None if idle is None else duration_ms(idle)
        async with AsyncTimeline(
            address, name, timeout_ms=TIMEOUT_MS, connect_timeout_ms=CONNECT_TIMEOUT_MS, client=settings
        ) as timeline:
            await timeline.describe()
            leases = timeline.work(
                consumer_id=consumer_id,
                rack=rack,
                max_in_flight=max_in_flight,
                lease_ms=lease_ms,
                idle_ms=idle_ms,
                order=order.value,
            )
            async for lease in leases:
                _show(lease, as_json=as_json)
                completions.add(asyncio.create_task(lease.complete()))
                done += 1
                await asyncio.sleep(0)  # lets the loop send completions and handle Ctrl-C
                if done == count or len(completions) >= COMPLETIONS_MAX:
                    completions = await _settled(completions)
                if done == count:
                    break
            await _settled(completions)

    try:
        with reached(address):
            asyncio.run(run())
    except (KeyboardInterrupt, asyncio.CancelledError):  # held messages that were not printed are already released
        remark(_completed(done))
        if count or idle is not None:  # it stopped before --count or --idle was reached
            raise KeyboardInterrupt from None
        return
    remark(_completed(done))


def _completed(count: int) -> str:
    return f"completed {count} message{'s' if count != 1 else ''}"


async def _settled(completions: "set[asyncio.Task[None]]") -> "set[asyncio.Task[None]]":
    """Wait for all completions. The first error ends the command."""
    await asyncio.gather(*completions)
    return set()


def _show(lease: "AsyncLease", *, as_json: bool) -> None:
    late_ms = time.time() * 1_000 - lease.due.timestamp() * 1_000
    if as_json:
        show_json(
            {
                "id": lease.id,
                "due": shown_time(lease.due),
                "late_ms": round(late_ms, 3),
                "attempts": lease.attempts,
                **text_fields(key=lease.key, body=lease.body),
            }
        )
        return
    key, body = text_of(lease.key) or "-", text_of(lease.body)
    again = f"  attempt {lease.attempts}" if lease.attempts > 1 else ""
    say(f"{shown_time(lease.due)}  {late_ms:6.1f} ms late{again}  {key}  {body}  ({lease.id})")
