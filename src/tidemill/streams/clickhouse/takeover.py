"""Lets a replica take over a range of partitions from the server that owned it. Blocking calls with a client.

Two servers must never store records of one partition at the same time. So a replica takes over only when ClickHouse
Keeper itself says that the owner is gone, and after that the owner cannot store anything:

1. The replica has replicated tables that it can write to, and the owner has no session in Keeper (`system.replicas`).
2. `SYSTEM SYNC REPLICA` returns: the replica has every part that Keeper knows, so every acknowledged insert.
3. `SYSTEM DROP REPLICA` removes the owner from Keeper. From then on its commits fail, and it is read-only when it
   returns. Keeper refuses this while the owner has a session, which ends the take-over.
4. The replica is synchronized again, and writes the next ownership into `range_owner`. One token makes the first of
   several brokers win. Inserts carry the ownership, so a broker that missed the take-over is rejected.

Whatever fails raises EngineRefused, and the owner stays the owner.
"""

import json
from typing import Any, NamedTuple

from tidemill.streams.clickhouse import schema
from tidemill.streams.clickhouse.errors import EngineRefused
from tidemill.streams.clickhouse.statements import text
from tidemill.streams.clickhouse.url import Server, ServerLayout

TOKEN = "insert_deduplication_token"  # noqa: S105 -- a server setting, not a secret
SYNC_TIMEOUT_S = 30


class Ownership(NamedTuple):
    """The owner of a range: the number of its ownership, its address, and its name in Keeper."""

    number: int
    server: str
    replica_name: str


class _Replica(NamedTuple):
    """A replica as it sees itself and the others."""

    name: str
    is_read_only: bool
    active: frozenset[str]
    known: frozenset[str]


def newest_ownership(layout: ServerLayout, client: Any) -> Ownership | None:
    """Return the newest ownership that a server knows. None: its tables are older than ownerships, or new."""
    there = f"SELECT count() AS found FROM system.tables WHERE database = {text(layout.database)}"
    if not int(_rows(client, f"{there} AND name = 'range_owner'")[0]["found"]):
        return None
    table = f"{schema.quoted(layout.database)}.range_owner"
    found = _rows(client, f"SELECT ownership, server, replica_name FROM {table} ORDER BY ownership DESC LIMIT 1")
    return Ownership(int(found[0]["ownership"]), found[0]["server"], found[0]["replica_name"]) if found else None


def is_healthy(layout: ServerLayout, owned: Ownership, client: Any) -> bool:
    """Whether the owner of a range answers, can be written to and does not know a later owner."""
    return newest_ownership(layout, client) == owned and not _replica(layout, client).is_read_only


def first_ownership(layout: ServerLayout, server: Server, client: Any) -> Ownership:
    """Return the ownership of a range; if there is none, this server gets it."""
    return newest_ownership(layout, client) or _own(layout, server, 1, client)


def take_over(layout: ServerLayout, candidate: Server, client: Any) -> Ownership:
    """Make this server the owner instead of the lost one, and return the owner: another broker may have been faster.

    EngineRefused says why it cannot be decided, or what the server lacks.
    """
    _check_version(layout, candidate, client)
    replica = _replica(layout, client)
    if replica.is_read_only:
        raise EngineRefused(f"{candidate.name} is read-only; it may have no connection to ClickHouse Keeper")
    _synchronize(layout, candidate, client)
    owner = newest_ownership(layout, client)
    if owner is None:
        raise EngineRefused(f"{candidate.name} does not know which server owns its range")
    if owner.server == candidate.name:
        return owner
    if owner.replica_name in replica.active:
        raise EngineRefused(
            f"{owner.server} has a session in ClickHouse Keeper, so it may still store records; "
            f"restore its connection to the brokers, or stop it"
        )
    if owner.replica_name in replica.known:
        database = schema.quoted(layout.database)
        client.command(f"SYSTEM DROP REPLICA {text(owner.replica_name)} FROM DATABASE {database}")
    _synchronize(layout, candidate, client)
    return _own(layout, candidate, owner.number + 1, client)


def publish_mapping(layout: ServerLayout, owners: list[str], client: Any) -> None:
    """Write which server owns which range, for the view `kafka_partition_mapping`."""
    rows = ", ".join(
        f"({place}, {text(owner)}, {server.low}, {server.high})"
        for place, (owner, server) in enumerate(zip(owners, layout.servers, strict=True))
    )
    client.command(
        f"INSERT INTO {schema.quoted(layout.database)}.partition_servers (place, server, low, high, version) "
        f"SELECT at.1, at.2, at.3, at.4, toUnixTimestamp64Milli(now64(3)) FROM (SELECT arrayJoin([{rows}]) AS at)"
    )


def _check_version(layout: ServerLayout, candidate: Server, client: Any) -> None:
    found = int(client.command(f"SELECT max(version) FROM {schema.quoted(layout.database)}.schema_version"))
    if found != schema.VERSION:
        raise EngineRefused(f"{candidate.name} has tables of version {found}, this broker has {schema.VERSION}")


def _replica(layout: ServerLayout, client: Any) -> _Replica:
    """Return what Keeper says about the tables of this server."""
    found = _rows(
        client,
        "SELECT table, replica_name, is_readonly, replica_is_active FROM system.replicas "
        f"WHERE database = {text(layout.database)}",
    )
    missing = sorted(schema.TABLES_WITH_DATA - {row["table"] for row in found})
    if missing:
        raise EngineRefused(f"table {missing[0]} is not replicated; create the tables with ?cluster=NAME")
    active = {name for row in found for name, is_active in row["replica_is_active"].items() if int(is_active)}
    known = {name for row in found for name in row["replica_is_active"]}
    is_read_only = any(int(row["is_readonly"]) for row in found)
    return _Replica(found[0]["replica_name"], is_read_only, frozenset(active), frozenset(known))


def _synchronize(layout: ServerLayout, candidate: Server, client: Any) -> None:
    """Return when the server has every part and every change that Keeper knows."""
    for table in sorted(schema.TABLES_WITH_DATA):
        client.command(
            f"SYSTEM SYNC REPLICA {schema.quoted(layout.database)}.{table} LIGHTWEIGHT",
            settings={"receive_timeout": SYNC_TIMEOUT_S},
        )
    running = f"SELECT count() FROM system.mutations WHERE database = {text(layout.database)} AND NOT is_done"
    if int(client.command(running)):
        raise EngineRefused(f"{candidate.name} still deletes rows; the take-over is tried again")


def _own(layout: ServerLayout, server: Server, number: int, client: Any) -> Ownership:
    """Write an ownership. Of all inserts with one token the first is stored, on whichever replica."""
    table = f"{schema.quoted(layout.database)}.range_owner"
    client.command(
        f"INSERT INTO {table} (ownership, server, replica_name) SETTINGS {TOKEN} = 'range-owner-{number}' "
        f"VALUES ({number}, {text(server.name)}, {text(_replica(layout, client).name)})"
    )
    client.command(f"SYSTEM SYNC REPLICA {table} LIGHTWEIGHT", settings={"receive_timeout": SYNC_TIMEOUT_S})
    found = newest_ownership(layout, client)
    if found is None or found.number < number:
        raise EngineRefused(f"{server.name} did not store the ownership of its range")
    return found


def _rows(client: Any, sql: str) -> list[dict[str, Any]]:
    found: bytes = client.raw_query(sql, fmt="JSONEachRow")
    return [json.loads(line) for line in found.splitlines() if line.strip()]
