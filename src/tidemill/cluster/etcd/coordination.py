"""Coordination on etcd, through the calls that aetcd generates.

A write whose answer is lost is sent again. It carries the revision it expects, so it is applied at most once. When the
second try finds the key changed, the key's value shows whether the first try was applied. A write that is still unknown
at the deadline raises CoordinationAway, and the caller must read again before it decides again.

A watch that breaks resumes after the last revision it yielded. When etcd has compacted that revision, it raises
WatchGap. Reads are linearizable: a member that is cut off from the others does not answer with old data.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import structlog
from aetcd import rpc

from tidemill.cluster.etcd.channels import PAUSE_S, Channels, EtcdChannel
from tidemill.cluster.etcd.date import member_clock
from tidemill.cluster.etcd.session import EtcdSession
from tidemill.cluster.etcd.url import parse
from tidemill.cluster.interface import (
    Changed,
    ClockReading,
    CoordinationAway,
    CoordinationSession,
    KeyGuard,
    PrefixListing,
    VersionedValue,
    WatchGap,
)
from tidemill.model.metrics import NetworkTraffic

ANSWER_S = 8.0
"""The timeout of a call over all members. A change of etcd's leader fits into it."""
LIST_PAGE = 5_000

log = structlog.get_logger("tidemill.cluster")


class EtcdCoordination:
    """Keys that brokers agree on, under one prefix of etcd."""

    shared = True

    def __init__(
        self,
        url: str,
        *,
        answer_s: float = ANSWER_S,
        clock: Callable[[], float] = time.monotonic,
        traffic: NetworkTraffic | None = None,
    ) -> None:
        self._url = parse(url)
        self._prefix = self._url.prefix
        self._channels = Channels(self._url, traffic)
        self._answer_s = answer_s
        self._clock = clock

    async def get(self, key: str) -> VersionedValue | None:
        """The key's entry, or None."""
        answer = await self._ask(_range, rpc.RangeRequest(key=self._key(key)))
        return VersionedValue(answer.kvs[0].value, answer.kvs[0].mod_revision) if answer.kvs else None

    async def get_prefix(self, prefix: str) -> PrefixListing:
        """All entries whose key has this prefix, page by page at one revision."""
        start, end = self._key(prefix), _after(self._key(prefix))
        entries: dict[str, VersionedValue] = {}
        revision = 0
        while True:
            request = rpc.RangeRequest(key=start, range_end=end, limit=LIST_PAGE, revision=revision)
            answer = await self._ask(_range, request)
            revision = revision or answer.header.revision
            for pair in answer.kvs:
                entries[self._name(pair.key)] = VersionedValue(pair.value, pair.mod_revision)
            if not answer.more:
                return PrefixListing(entries, revision)
            start = answer.kvs[-1].key + b"\0"

    async def compare_and_put(
        self,
        key: str,
        value: bytes | None,
        revision: int,
        *,
        session: CoordinationSession | None = None,
        guard: KeyGuard | None = None,
    ) -> int | None:
        """Write (or with None delete) a key that is at `revision`; the new revision, or None when it is not."""
        request = self._transaction(key, value, revision, session, guard)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._answer_s
        unsure = False
        while (left := deadline - loop.time()) > 0:
            try:
                answer = await self._channels.once(_transact, request, min(left, self._answer_s / 2))
            except rpc.AioRpcError as error:
                raise CoordinationAway(f"{self._where} rejected the call: {error.details()}") from None
            if answer is None:
                unsure = True
                await asyncio.sleep(PAUSE_S)
                continue
            if answer.succeeded:
                return int(answer.header.revision)
            return await self._done_before(key, value, revision) if unsure else None
        raise CoordinationAway(f"{self._where} did not answer within {self._answer_s:g} s{self._channels.trouble}")

    async def _done_before(self, key: str, value: bytes | None, revision: int) -> int | None:
        """The revision of a try whose answer was lost, if the key still has its value."""
        found = await self.get(key)
        if value is None:
            return revision + 1 if found is None else None
        return found.revision if found is not None and found.value == value and found.revision > revision else None

    async def watch(self, prefix: str, after_revision: int) -> AsyncIterator[Changed]:
        """Every change under the prefix later than `after_revision`."""
        seen = after_revision
        while True:
            try:
                member, channel = await self._channels.current()
                async for changes in self._stream(channel, prefix, seen + 1):
                    for change in changes:
                        seen = change.revision
                        yield change
                self._channels.forget_login(member)  # an expired token may be the reason that etcd ended the watch
                self._channels.leave(member)
            except rpc.AioRpcError as error:
                log.info("etcd_watch_restarted", error=error.details())
                self._channels.failed(error)
            await asyncio.sleep(PAUSE_S)

    async def _stream(self, channel: EtcdChannel, prefix: str, start: int) -> AsyncIterator[list[Changed]]:
        """The changes of each response of one watch stream."""
        begin, end = self._key(prefix), _after(self._key(prefix))
        # A member without a leader would stay silent. `hasleader` makes it end the stream instead.
        create = rpc.WatchCreateRequest(key=begin, range_end=end, start_revision=start)
        stream = channel.watches.Watch(metadata=(("hasleader", "true"), *(channel.login or ())))
        try:
            await stream.write(rpc.WatchRequest(create_request=create))
            while True:
                answer = await stream.read()
                if not isinstance(answer, rpc.WatchResponse):
                    return
                self._channels.traffic.bytes_in += answer.ByteSize()
                if answer.compact_revision:
                    raise WatchGap
                if answer.canceled:
                    return
                yield [
                    Changed(
                        self._name(event.kv.key),
                        None if event.type == rpc.Event.DELETE else event.kv.value,
                        event.kv.mod_revision,
                    )
                    for event in answer.events
                ]
        finally:
            stream.cancel()

    @asynccontextmanager
    async def session(self, ttl_ms: int) -> AsyncIterator[CoordinationSession]:
        """A session that is renewed while the block runs and ended after it."""
        mine = EtcdSession(self._channels, ttl_ms, self._clock)
        await mine.begin(asyncio.get_running_loop().time() + self._answer_s)
        try:
            yield mine
        finally:
            await mine.end()

    async def clock(self) -> ClockReading | None:
        """The time of the first member that reports it."""
        for member in self._url.members:
            reading = await member_clock(member, self._url.tls)
            if reading is not None:
                return reading
        return None

    async def close(self) -> None:
        """Close the channels to the members."""
        await self._channels.close()

    @property
    def _where(self) -> str:
        return f"etcd at {','.join(self._url.members)}"

    async def _ask(self, method: Callable[[EtcdChannel], Any], request: Any) -> Any:
        deadline = asyncio.get_running_loop().time() + self._answer_s
        try:
            answer = await self._channels.call(method, request, deadline)
        except rpc.AioRpcError as error:
            raise CoordinationAway(f"{self._where} rejected the call: {error.details()}") from None
        if answer is None:
            raise CoordinationAway(f"{self._where} did not answer within {self._answer_s:g} s{self._channels.trouble}")
        return answer

    def _transaction(
        self, key: str, value: bytes | None, revision: int, session: CoordinationSession | None, guard: KeyGuard | None
    ) -> Any:
        name = self._key(key)
        compare = [_at_revision(name, revision)]
        if guard is not None:
            compare.append(_at_revision(self._key(guard.key), guard.revision))
        if value is None:
            change = rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=name))
        else:
            lease = session.lease_id if isinstance(session, EtcdSession) else 0
            change = rpc.RequestOp(request_put=rpc.PutRequest(key=name, value=value, lease=lease))
        return rpc.TxnRequest(compare=compare, success=[change])

    def _key(self, key: str) -> bytes:
        return (self._prefix + key).encode()

    def _name(self, key: bytes) -> str:
        return key.decode().removeprefix(self._prefix)


def _range(channel: EtcdChannel) -> Any:
    return channel.keys.Range


def _transact(channel: EtcdChannel) -> Any:
    return channel.keys.Txn


def _at_revision(name: bytes, revision: int) -> Any:
    return rpc.Compare(
        key=name, target=rpc.Compare.CompareTarget.MOD, result=rpc.Compare.CompareResult.EQUAL, mod_revision=revision
    )


def _after(prefix: bytes) -> bytes:
    """The first key after all keys with the prefix. The prefix is text, so it never ends in byte 255."""
    return prefix[:-1] + bytes((prefix[-1] + 1,))
