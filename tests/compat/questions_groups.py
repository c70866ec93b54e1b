"""Requests about groups and transactions. `comparison.py` sends them to Apache Kafka too."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.compat.comparison import Fields, Question, State
from tests.compat.questions import NOW_MS, created, ms, topic

from tidemill.records.build import NewRecord, build_batch

# -- groups ------------------------------------------------------------------------------------------------------------


def joining(
    group: str = "g",
    member: str = "",
    kind: str = "consumer",
    protocols: Sequence[str] = ("range",),
    session_ms: int = 10_000,
    instance: str | None = None,
) -> Fields:
    return {
        "group_id": group,
        "session_timeout": ms(session_ms),
        "rebalance_timeout": ms(10_000),
        "member_id": member,
        "group_instance_id": instance,
        "protocol_type": kind,
        "protocols": [{"name": name, "metadata": b"x"} for name in protocols],
        "reason": None,
    }


def syncing(state: State, later: int = 0, **other: Any) -> Fields:
    return {
        "group_id": "g",
        "generation_id": state["generation"] + later,
        "member_id": state["member"],
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": state["member"], "assignment": b"all"}],
        **other,
    }


def beating(state: State, later: int = 0, **other: Any) -> Fields:
    asked = {"group_id": "g", "generation_id": state["generation"] + later, "member_id": state["member"]}
    return {**asked, "group_instance_id": None, **other}


def committing(group: str, generation: int = -1, member: str = "", **part: Any) -> Fields:
    where = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    return {
        "group_id": group,
        "generation_id": generation,
        "generation_id_or_member_epoch": generation,
        "member_id": member,
        "group_instance_id": None,
        "topics": [{"name": part.pop("name", "held"), "partitions": [{**where, **part}]}],
    }


def fetching(*groups: str, stable: bool = False) -> Fields:
    asked = [{"group_id": group, "member_id": None, "member_epoch": -1, "topics": None} for group in groups]
    return {"groups": asked, "require_stable": stable}


def _learn_member(state: State, answer: Any) -> None:
    state.update(member=answer.member_id, generation=answer.generation_id)


def on_groups() -> Iterator[Question]:
    yield Question("topics for groups", 19, 4, created(topic("held", 2)))
    yield Question("coordinators", 10, 4, {"key_type": 0, "coordinator_keys": ["g", "s"]})
    for kind, keys in ((1, [""]), (0, ["g", "h", "g"]), (0, []), (5, ["x"])):
        yield Question(f"coordinator: {kind} of {keys}", 10, 4, {"key_type": kind, "coordinator_keys": keys})
    for name, fields in {
        "no name": joining(""),
        "a short session": joining(session_ms=1),
        "a long session": joining(session_ms=10**8),
        "no protocols": joining(protocols=()),
        "no kind": joining(kind=""),
        "an unknown member": joining(member="unknown"),
    }.items():
        yield Question(f"join: {name}", 11, 9, fields)
    yield Question("join", 11, 9, joining(), _learn_member)
    yield Question("join with the id", 11, 9, lambda state: joining(member=state["member"]), _learn_member)
    yield from _on_members()
    yield from _on_commits()
    yield from _on_consumer_groups()


def _on_members() -> Iterator[Question]:
    asked: dict[str, Callable[[State], Fields]] = {
        "a generation to come": lambda state: syncing(state, 5),
        "an unknown member": lambda state: syncing(state, member_id="unknown"),
        "another protocol": lambda state: syncing(state, protocol_name="sticky"),
        "another kind": lambda state: syncing(state, protocol_type="connect"),
        "an unknown group": lambda state: syncing(state, group_id="unknown"),
        "as it should be": syncing,
        "once more": syncing,
    }
    yield from (Question(f"sync: {name}", 14, 5, fields) for name, fields in asked.items())
    asked = {
        "as it should be": beating,
        "a generation to come": lambda state: beating(state, 1),
        "a generation that was": lambda state: beating(state, -1),
        "an unknown member": lambda state: beating(state, member_id="unknown"),
        "an unknown group": lambda state: beating(state, group_id="unknown"),
        "no name": lambda state: beating(state, group_id=""),
        "another instance": lambda state: beating(state, group_instance_id="i"),
    }
    yield from (Question(f"heartbeat: {name}", 12, 4, fields) for name, fields in asked.items())
    yield Question("join: another kind", 11, 9, joining(kind="connect"))
    yield Question("join: other protocols", 11, 9, joining(protocols=("sticky",)))

    def leaving(group: str, *members: tuple[str, str | None]) -> Fields:
        asked = [{"member_id": one, "group_instance_id": instance, "reason": None} for one, instance in members]
        return {"group_id": group, "members": asked}

    for name, fields in {
        "an unknown group": leaving("unknown", ("m", None)),
        "an unknown member": leaving("g", ("unknown", None)),
        "an unknown instance": leaving("g", ("", "unknown")),
        "no member": leaving("g"),
        "no name": leaving("", ("m", None)),
    }.items():
        yield Question(f"leave: {name}", 13, 5, fields)


def _on_commits() -> Iterator[Question]:
    def mine(later: int = 0, member: str | None = None) -> Callable[[State], Fields]:
        return lambda state: committing("g", state["generation"] + later, member or state["member"])

    asked: dict[str, Any] = {
        "a member's": mine(),
        "a generation to come": mine(90),
        "an unknown member": mine(member="unknown"),
        "without a member, of a group that has members": committing("g"),
        "without a member": committing("s"),
        "an unknown topic": committing("s", name="nope"),
        "an unknown partition": committing("s", partition_index=9),
        "an offset below zero": committing("s", committed_offset=-1),
        "much to say": committing("s", committed_metadata="x" * 5_000),
        "nothing to say": committing("s", committed_metadata=None),
        "beyond the end": committing("s", committed_offset=10**9),
        "a generation of an unknown group": committing("new", 5, "m"),
    }
    yield from (Question(f"commit: {name}", 8, 8, fields) for name, fields in asked.items())
    yield Question("committed", 9, 9, fetching("s"))
    yield Question("committed: an unknown group", 9, 9, fetching("unknown"))
    yield Question("committed: twice", 9, 9, fetching("s", "s"))
    for states, kinds in (
        ([], []),
        (["Stable"], []),
        (["stable"], []),
        (["zap"], []),
        ([], ["CLASSIC"]),
        ([], ["zap"]),
    ):
        yield Question(f"list: {states} {kinds}", 16, 5, {"states_filter": states, "types_filter": kinds})
    for version in (5, 6):
        asked_for = {"groups": ["g", "unknown", "s"], "include_authorized_operations": False}
        yield Question(f"describe, version {version}", 15, version, asked_for)
    for name in ("g", "unknown", "s"):
        yield Question(f"delete {name}", 42, 2, {"groups_names": [name]})


def _on_consumer_groups() -> Iterator[Question]:
    def beat(group: str = "n", member: str = "m1", epoch: int = 0, **other: Any) -> Fields:
        asked = {
            "group_id": group,
            "member_id": member,
            "member_epoch": epoch,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": ms(10_000),
            "subscribed_topic_names": ["held"],
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": [],
        }
        return {**asked, **other}

    for name, fields in {
        "no such assignor": beat(server_assignor="zap"),
        "no subscription": beat(subscribed_topic_names=None),
        "partitions left out": beat(topic_partitions=None),
        "no time to rebalance": beat(rebalance_timeout=ms(-1)),
        "an empty instance": beat(instance_id=""),
        "epoch -3": beat(epoch=-3),
        "a pattern that is none": beat(subscribed_topic_names=None, subscribed_topic_regex="(["),
        "join": beat(),
        "sign of life": beat(epoch=1, rebalance_timeout=ms(-1), subscribed_topic_names=None, topic_partitions=None),
        "an epoch to come": beat(epoch=9, rebalance_timeout=ms(-1), subscribed_topic_names=None, topic_partitions=None),
        "an unknown member": beat(member="unknown", epoch=1),
        "leave": beat(epoch=-1),
        "leave once more": beat(epoch=-1),
    }.items():
        yield Question(f"consumer heartbeat: {name}", 68, 1, fields)
    for names in (["n"], ["unknown"], []):
        asked_for = {"group_ids": names, "include_authorized_operations": False}
        yield Question(f"consumer groups: {names}", 69, 1, asked_for)


# -- transactions ------------------------------------------------------------------------------------------------------


def begun(name: str | None = "t", timeout_ms: int = 60_000, producer: int = -1, epoch: int = -1) -> Fields:
    asked = {"transactional_id": name, "transaction_timeout": ms(timeout_ms)}
    return {**asked, "producer_id": producer, "producer_epoch": epoch}


def _learn_producer(state: State, answer: Any) -> None:
    state.update(id=answer.producer_id, epoch=answer.producer_epoch)


def by_producer(later: int = 0, other: int = 0, **fields: Any) -> Callable[[State], Fields]:
    return lambda state: {
        "transactional_id": "t",
        "producer_id": state["id"] + other,
        "producer_epoch": state["epoch"] + later,
        **fields,
    }


def adding(later: int = 0, other: int = 0, name: str = "t", **places: Sequence[int]) -> Callable[[State], Fields]:
    topics = [{"name": one, "partitions": list(partitions)} for one, partitions in places.items()]

    def made(state: State) -> Fields:
        asked = by_producer(later, other, transactional_id=name, topics=topics)(state)
        return {**asked, **{f"v3_and_below_{key}": value for key, value in asked.items()}}

    return made


def writing(sequence: int, later: int = 0, place: str = "txn", *, inside: bool = True) -> Callable[[State], Fields]:
    def made(state: State) -> Fields:
        batch = build_batch(
            [NewRecord(b"k", b"v", (), NOW_MS)],
            producer_id=state["id"],
            producer_epoch=state["epoch"] + later,
            base_sequence=sequence,
            transactional=inside,
        )
        topics = [{"name": place, "partition_data": [{"index": 0, "records": bytes(batch)}]}]
        return {"transactional_id": "t", "acks": -1, "timeout": ms(5_000), "topic_data": topics}

    return made


def on_transactions() -> Iterator[Question]:
    yield Question("topics for transactions", 19, 4, created(topic("txn", 2), topic("aside")))
    yield Question("coordinator", 10, 4, {"key_type": 1, "coordinator_keys": ["t"]})
    yield Question("coordinator of the group", 10, 4, {"key_type": 0, "coordinator_keys": ["tg"]})
    for name, fields in {
        "no name": begun(""),
        "no time": begun(timeout_ms=0),
        "too much time": begun(timeout_ms=10**9),
        "a producer without epoch": begun(producer=5),
        "an epoch without producer": begun(epoch=5),
    }.items():
        yield Question(f"init: {name}", 22, 4, fields)
    yield Question("init", 22, 4, begun(), _learn_producer)
    for name, made in {
        "an unknown topic": adding(nope=[0]),
        "a known and an unknown topic": adding(txn=[0], nope=[0]),
        "an unknown partition": adding(txn=[9]),
        "another name": adding(name="other", txn=[0]),
        "another producer": adding(other=1, txn=[0]),
        "an epoch to come": adding(1, txn=[0]),
        "nothing": adding(),
    }.items():
        yield Question(f"add: {name}", 24, 3, made)
    for name, made in {
        "nothing was begun": by_producer(committed=True),
        "nothing was begun, abort": by_producer(committed=False),
        "an unknown name": by_producer(committed=True, transactional_id="unknown"),
        "an epoch to come": by_producer(1, committed=True),
        "another producer": by_producer(other=1, committed=True),
    }.items():
        yield Question(f"end: {name}", 26, 3, made)
    yield from _on_open_transaction()
    yield from _on_ended_transaction()


def _on_open_transaction() -> Iterator[Question]:
    yield Question("write: before it was added", 0, 9, writing(0))
    yield Question("add", 24, 3, adding(txn=[0]))
    yield Question("write", 0, 9, writing(0))
    yield Question("write: outside of it", 0, 9, writing(1, inside=False))
    yield Question("write: an epoch to come", 0, 9, writing(0, 1))
    yield Question("write: what was not added", 0, 9, writing(0, place="aside"))
    yield Question("offsets: an epoch to come", 25, 3, by_producer(1, group_id="tg"))
    yield Question("offsets", 25, 3, by_producer(group_id="tg"))

    def offsets(later: int = 0, group: str = "tg", **part: Any) -> Callable[[State], Fields]:
        where = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": ""}
        topics = [{"name": part.pop("name", "txn"), "partitions": [{**where, **part}]}]
        about: dict[str, Any] = {"group_id": group, "generation_id": -1, "member_id": "", "group_instance_id": None}
        return by_producer(later, topics=topics, **about)

    for name, made in {
        "as it should be": offsets(),
        "an unknown topic": offsets(name="nope"),
        "much to say": offsets(committed_metadata="x" * 5_000),
        "the epoch before": offsets(-1),
        "an epoch to come": offsets(1),
    }.items():
        yield Question(f"commit in it: {name}", 28, 3, made)
    yield Question("committed, stable", 9, 9, fetching("tg", stable=True))
    yield Question("committed", 9, 9, fetching("tg"))
    for states in (["Ongoing"], ["zap"]):
        asked = {"state_filters": states, "producer_id_filters": [], "duration_filter": -1}
        yield Question(f"transactions: {states}", 66, 1, asked)
    yield Question("end: the epoch before", 26, 3, by_producer(-1, committed=True))


def _on_ended_transaction() -> Iterator[Question]:
    def learn_epoch(state: State, answer: Any) -> None:
        state.update(epoch=answer.producer_epoch)

    yield Question("end", 26, 3, by_producer(committed=True))
    yield Question("init again", 22, 4, begun(), learn_epoch)
    yield Question("write: the one before", 0, 9, writing(1, -1))
    yield Question("add: the one before", 24, 3, adding(-1, txn=[0]))
    yield Question("end: the one before", 26, 3, by_producer(-1, committed=True))
    yield Question(
        "init: as itself", 22, 4, lambda state: begun(producer=state["id"], epoch=state["epoch"]), learn_epoch
    )
