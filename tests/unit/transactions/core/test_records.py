"""The journal's bytes: round trip, Kafka's own layout, and damage."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.model.errors import CorruptMessage
from tidemill.model.topics import TopicPartition
from tidemill.transactions.core.records import read_key, read_value, write_key, write_value
from tidemill.transactions.core.state import NO_PRODUCER, ProducerIdAndEpoch, Transaction, TransactionStatus

int64s = st.integers(-1, 2**63 - 1)
epochs = st.integers(-1, 32767)
identities = st.builds(ProducerIdAndEpoch, int64s, epochs)
topic_partitions = st.builds(TopicPartition, st.text(max_size=20), st.integers(0, 2**31 - 1))


@st.composite
def transactions(draw: st.DrawFn) -> Transaction:
    state = draw(st.sampled_from(TransactionStatus))
    return Transaction(
        draw(st.text(min_size=1, max_size=30)),
        draw(identities),
        timeout_ms=draw(st.integers(0, 2**31 - 1)),
        updated_ms=draw(int64s),
        last=draw(identities),
        next_producer_id=draw(int64s),
        state=state,
        partitions=frozenset()
        if state is TransactionStatus.EMPTY
        else frozenset(draw(st.sets(topic_partitions, max_size=8))),
        started_ms=draw(int64s),
        client_version=draw(st.integers(0, 2)),
    )


@settings(max_examples=100, deadline=None)
@given(transactions())
def test_an_encoded_entry_is_decoded_unchanged(known: Transaction) -> None:
    name = read_key(write_key(known.transactional_id))
    assert name == known.transactional_id
    assert read_value(name, write_value(known)) == known


def test_the_layout_is_kafkas() -> None:
    known = Transaction(
        "tx",
        ProducerIdAndEpoch(7, 3),
        timeout_ms=60_000,
        updated_ms=5,
        state=TransactionStatus.ONGOING,
        partitions=frozenset({TopicPartition("t", 1), TopicPartition("t", 0)}),
        started_ms=4,
        client_version=2,
    )
    assert write_key("tx") == bytes.fromhex("0000 0002 7478")
    assert write_value(known) == bytes.fromhex(
        "0001"  # version
        "0000000000000007 0003 0000ea60 01"  # producer id, epoch, timeout, status
        "02 0274 03 00000000 00000001 00"  # one topic of two partitions
        "0000000000000005 0000000000000004"  # updated, started
        "01 02 02 0002"  # one tagged field: the client's transaction version
    )


def test_an_old_value_is_read() -> None:
    value = bytes.fromhex(
        "0000 0000000000000007 0003 0000ea60 02 00000001 0001 74 00000001 00000005 0000000000000009 0000000000000008"
    )
    known = read_value("tx", value)
    assert known.identity == ProducerIdAndEpoch(7, 3)
    assert known.state is TransactionStatus.PREPARE_COMMIT
    assert known.partitions == {TopicPartition("t", 5)}
    assert (known.updated_ms, known.started_ms, known.last) == (9, 8, NO_PRODUCER)


def test_an_old_value_may_have_no_partitions_at_all() -> None:
    value = bytes.fromhex("0000 0000000000000007 0003 0000ea60 00 ffffffff 0000000000000009 ffffffffffffffff")
    assert read_value("tx", value).partitions == frozenset()


def test_a_tagged_field_of_the_future_is_skipped() -> None:
    known = Transaction("tx", ProducerIdAndEpoch(7, 3), timeout_ms=1, updated_ms=2, client_version=2)
    value = write_value(known)
    assert value.endswith(bytes.fromhex("01 02 02 0002"))
    future = value[:-5] + bytes.fromhex("02 02 02 0002 63 03 aabbcc")
    assert read_value("tx", future) == known


def test_a_key_of_another_kind_is_not_ours() -> None:
    assert read_key(bytes.fromhex("0007 0002 7478")) is None


@pytest.mark.parametrize("value", ["", "0001", "0009" + "00" * 40, "0001" + "ff" * 40, "0000" + "7f" * 40])
def test_damage_is_reported(value: str) -> None:
    with pytest.raises(CorruptMessage):
        read_value("tx", bytes.fromhex(value))


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00"])
def test_a_cut_key_is_reported(key: bytes | None) -> None:
    with pytest.raises(CorruptMessage):
        read_key(key)


@settings(max_examples=100, deadline=None)
@given(transactions(), st.data())
def test_any_damage_is_an_error_or_a_state_never_something_else(known: Transaction, data: st.DataObject) -> None:
    value = bytearray(write_value(known))
    for _ in range(data.draw(st.integers(1, 4))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    cut = value[: data.draw(st.integers(0, len(value)))]
    with suppress(CorruptMessage):
        assert isinstance(read_value("tx", bytes(cut)), Transaction)


@pytest.mark.parametrize(
    ("characters", "length"), [(1, "02"), (126, "7f"), (127, "8001"), (128, "8101"), (249, "fa01")]
)
def test_lengths_are_varints_as_kafka_writes_them(characters: int, length: str) -> None:
    topic = "t" * characters
    known = Transaction(
        "tx",
        ProducerIdAndEpoch(7, 3),
        timeout_ms=60_000,
        updated_ms=5,
        state=TransactionStatus.ONGOING,
        partitions=frozenset({TopicPartition(topic, 1)}),
        started_ms=4,
        client_version=2,
    )
    value = write_value(known)
    assert bytes.fromhex("02" + length) + topic.encode() in value, "one topic, and its length plus one"
    assert read_value("tx", value) == known
