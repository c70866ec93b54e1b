"""The journal's formats: exact bytes of Kafka, both ways, and no trust in damaged ones."""

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.groups.core import entries as e
from tidemill.groups.core.fields import FieldReader, FieldWriter
from tidemill.groups.core.records import decode, encode

texts = st.text(max_size=20)
optional = st.none() | texts
numbers = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)
blobs = st.binary(max_size=20)
partitions = st.frozensets(st.tuples(st.uuids(), st.integers(0, 1000)), max_size=5)
snapshots = st.builds(e.MemberSnapshot, texts, optional, texts, texts, numbers, numbers, blobs, blobs)
offset_values = st.builds(e.OffsetValue, longs, numbers, texts, longs, st.just(-1)) | st.builds(
    e.OffsetValue, longs, st.just(-1), texts, longs, st.integers(0, 2**62)
)
all_entries = st.one_of(
    st.builds(e.GroupEntry, st.builds(e.OffsetKey, texts, texts, numbers), st.none() | offset_values),
    st.builds(e.GroupEntry, st.builds(e.StagedKey, longs, texts, texts, numbers), st.none() | offset_values),
    st.builds(
        e.GroupEntry,
        st.builds(e.GroupKey, texts),
        st.none()
        | st.builds(
            e.GroupValue, texts, numbers, optional, optional, longs, st.lists(snapshots, max_size=3).map(tuple)
        ),
    ),
    st.builds(
        e.GroupEntry, st.builds(e.ConsumerGroupKey, texts), st.none() | st.builds(e.ConsumerGroupValue, numbers, longs)
    ),
    st.builds(
        e.GroupEntry,
        st.builds(e.MemberKey, texts, texts),
        st.none()
        | st.builds(
            e.MemberValue,
            optional,
            optional,
            texts,
            texts,
            st.lists(texts, max_size=3).map(tuple),
            optional,
            numbers,
            optional,
            st.none() | st.builds(e.ClassicMember, numbers, st.lists(st.tuples(texts, blobs), max_size=3).map(tuple)),
        ),
    ),
    st.builds(e.GroupEntry, st.builds(e.TargetEpochKey, texts), st.none() | st.builds(e.TargetEpochValue, numbers)),
    st.builds(e.GroupEntry, st.builds(e.TargetKey, texts, texts), st.none() | st.builds(e.TargetValue, partitions)),
    st.builds(
        e.GroupEntry,
        st.builds(e.CurrentKey, texts, texts),
        st.none() | st.builds(e.CurrentValue, numbers, numbers, st.integers(-128, 127), partitions, partitions),
    ),
)


@settings(max_examples=100, deadline=None)
@given(all_entries)
def test_an_encoded_entry_is_decoded_unchanged(entry: e.GroupEntry) -> None:
    assert decode(*encode(entry)) == entry


def test_an_offset_as_kafka_writes_it() -> None:
    entry = e.GroupEntry(e.OffsetKey("g", "topic", 3), e.OffsetValue(42, 7, "note", 1_700_000_000_000))
    key, value = encode(entry)
    assert key == bytes.fromhex("0001" + "0001" + b"g".hex() + "0005" + b"topic".hex() + "00000003")
    assert value == bytes.fromhex(
        "0003" + "000000000000002a" + "00000007" + "0004" + b"note".hex() + "0000018bcfe56800"
    )


def test_a_group_as_kafka_writes_it() -> None:
    member = e.MemberSnapshot("m", None, "c", "/h", 300_000, 45_000, b"sub", b"assign")
    key, value = encode(e.GroupEntry(e.GroupKey("g"), e.GroupValue("consumer", 5, "range", "m", 9, (member,))))
    assert key == bytes.fromhex("0002" + "0001" + b"g".hex())
    assert value == bytes.fromhex(
        "0003"
        + ("0008" + b"consumer".hex() + "00000005" + "0005" + b"range".hex() + "0001" + b"m".hex())
        + ("0000000000000009" + "00000001")
        + ("0001" + b"m".hex() + "ffff" + "0001" + b"c".hex() + "0002" + b"/h".hex())
        + ("000493e0" + "0000afc8" + "00000003" + b"sub".hex() + "00000006" + b"assign".hex())
    )


def test_an_assignment_as_kafka_writes_it() -> None:
    topic = UUID(int=1)
    value = e.CurrentValue(3, 2, 1, frozenset({(topic, 0), (topic, 2)}), frozenset())
    key, written = encode(e.GroupEntry(e.CurrentKey("g", "m"), value))
    assert key == bytes.fromhex("0008" + "0001" + b"g".hex() + "0001" + b"m".hex())
    assert written == bytes.fromhex(
        "0000" + "00000003" + "00000002" + "01" + "02" + "00" * 15 + "01" + "03" + "00000000" + "00000002" + "00"
        "01" + "00"
    )


def test_a_member_with_classic_protocols_as_kafka_writes_it() -> None:
    """Tags follow each protocol, and the structure; with one protocol a missing tag could be taken for the other."""
    classic = e.ClassicMember(45_000, (("range", b"ab"), ("roundrobin", b"")))
    value = e.MemberValue(None, None, "c", "/h", ("t",), None, 300_000, "uniform", classic)
    key, written = encode(e.GroupEntry(e.MemberKey("g", "m"), value))
    protocols = "06" + b"range".hex() + "03" + b"ab".hex() + "00" + "0b" + b"roundrobin".hex() + "01" + "00"
    structure = bytes.fromhex("01" + "0000afc8" + "03" + protocols + "00")
    assert key == bytes.fromhex("0005" + "0001" + b"g".hex() + "0001" + b"m".hex())
    assert written == bytes.fromhex(
        ("0000" + "00" + "00" + "02" + b"c".hex() + "03" + b"/h".hex() + "02" + "02" + b"t".hex() + "00")
        + ("000493e0" + "08" + b"uniform".hex())
        + ("01" + "00" + f"{len(structure):02x}" + structure.hex())
    )
    assert decode(key, written) == e.GroupEntry(e.MemberKey("g", "m"), value)
    for marker, is_present in ((0, True), (-1, False)):
        marked = written.replace(structure, marker.to_bytes(1, "big", signed=True) + structure[1:])
        entry = decode(key, marked)
        assert entry is not None
        assert entry.value == (value if is_present else value._replace(classic=None))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0000" + "0000000000000005" + "0001" + "6d" + "0000000000000009", e.OffsetValue(5, -1, "m", 9)),
        (
            "0001" + "0000000000000005" + "0000" + "0000000000000009" + "000000000000000a",
            e.OffsetValue(5, -1, "", 9, 10),
        ),
        ("0002" + "0000000000000005" + "0000" + "0000000000000009", e.OffsetValue(5, -1, "", 9)),
        ("0004" + "0000000000000005" + "00000001" + "026d" + "0000000000000009" + "00", e.OffsetValue(5, 1, "m", 9)),
    ],
)
def test_other_versions_of_an_offset_are_read(value: str, expected: e.OffsetValue) -> None:
    key, _ = encode(e.GroupEntry(e.OffsetKey("g", "t", 0), None))
    assert decode(key, bytes.fromhex(value)) == e.GroupEntry(e.OffsetKey("g", "t", 0), expected)
    assert decode(b"\0\0" + key[2:], bytes.fromhex(value)) == e.GroupEntry(e.OffsetKey("g", "t", 0), expected)


def test_the_oldest_groups_are_read() -> None:
    member = "0001" + "6d" + "0001" + "63" + "0001" + "68" + "00001770" + "00000001" + "73" + "00000001" + "61"
    value = "0000" + "0008" + b"consumer".hex() + "00000001" + "ffff" + "ffff" + "00000001" + member
    entry = decode(*encode(e.GroupEntry(e.GroupKey("g"), None))[:1], bytes.fromhex(value))
    assert entry is not None
    assert entry.value == e.GroupValue(
        "consumer", 1, None, None, -1, (e.MemberSnapshot("m", None, "c", "h", 6000, 6000, b"s", b"a"),)
    )


def test_groups_of_version_2_have_the_time_of_their_state() -> None:
    member = (
        "0001" + "6d" + "0001" + "63" + "0001" + "68" + "00000009" + "00001770" + "00000001" + "73" + "00000001" + "61"
    )
    value = (
        "0002" + "0008" + b"consumer".hex() + "00000001" + "ffff" + "ffff" + "0000000000000007" + "00000001" + member
    )
    entry = decode(*encode(e.GroupEntry(e.GroupKey("g"), None))[:1], bytes.fromhex(value))
    assert entry is not None
    assert entry.value == e.GroupValue(
        "consumer", 1, None, None, 7, (e.MemberSnapshot("m", None, "c", "h", 9, 6000, b"s", b"a"),)
    )


def test_groups_of_the_flexible_version_are_read() -> None:
    member = "026d" + "0269" + "0263" + "0268" + "00000009" + "00001770" + "0273" + "0261" + "00"
    value = "0004" + "09" + b"consumer".hex() + "00000001" + "00" + "00" + "0000000000000007" + "02" + member + "00"
    entry = decode(*encode(e.GroupEntry(e.GroupKey("g"), None))[:1], bytes.fromhex(value))
    assert entry is not None
    assert entry.value == e.GroupValue(
        "consumer", 1, None, None, 7, (e.MemberSnapshot("m", "i", "c", "h", 9, 6000, b"s", b"a"),)
    )


def test_a_consumer_group_as_kafka_writes_it() -> None:
    key, value = encode(e.GroupEntry(e.ConsumerGroupKey("g"), e.ConsumerGroupValue(5)))
    assert (key, value) == (bytes.fromhex("0003" + "0001" + b"g".hex()), bytes.fromhex("0000" + "00000005" + "00"))
    _, value = encode(e.GroupEntry(e.ConsumerGroupKey("g"), e.ConsumerGroupValue(5, -2)))
    assert value == bytes.fromhex("0000" + "00000005" + "01" + "00" + "08" + "fffffffffffffffe")


@pytest.mark.parametrize(
    ("number", "written"), [(0, "00"), (127, "7f"), (128, "8001"), (16_383, "ff7f"), (16_384, "808001")]
)
def test_a_number_takes_as_few_bytes_as_it_can(number: int, written: str) -> None:
    writer = FieldWriter()
    writer.varint(number)
    assert writer.done() == bytes.fromhex(written)
    assert FieldReader(bytes.fromhex(written)).varint() == number


def test_the_weight_of_an_entry_is_the_number_of_its_parts() -> None:
    topic, member = UUID(int=1), e.MemberSnapshot("m", None, "c", "/h", 1, 1, b"", b"")
    one, two = frozenset({(topic, 0)}), frozenset({(topic, 0), (topic, 1)})
    values: dict[e.Value | None, int] = {
        None: 1,
        e.OffsetValue(1, 1, "", 1): 1,
        e.GroupValue("consumer", 1, None, None, 1, (member, member)): 3,
        e.MemberValue(None, None, "c", "/h", ("t", "u"), None, 1, None, None): 3,
        e.TargetValue(two): 3,
        e.CurrentValue(1, 1, 0, two, one): 4,
    }
    assert {value: e.weight(e.GroupEntry(e.GroupKey("g"), value)) for value in values} == values


@pytest.mark.parametrize("kind", [4, 9, 16, 999, -1])
def test_records_of_others_are_passed_over(kind: int) -> None:
    assert decode(kind.to_bytes(2, "big", signed=True) + b"anything", b"anything") is None


@settings(max_examples=100, deadline=None)
@given(all_entries, st.data())
def test_a_cut_record_is_refused_and_not_guessed(entry: e.GroupEntry, data: st.DataObject) -> None:
    key, value = encode(entry)
    if value is not None:
        cut = data.draw(st.integers(0, len(value) - 1))
        try:
            decode(key, value[:cut])
        except ValueError:
            return
        # Only the end of a value, which holds no field that is used, may be missing.
        assert decode(key, value[:cut]) == entry


@settings(max_examples=100, deadline=None)
@given(all_entries, st.integers(-(2**15), -1) | st.integers(5, 2**15 - 1), blobs)
def test_noise_is_refused(entry: e.GroupEntry, version: int, noise: bytes) -> None:
    key, _ = encode(entry)
    with pytest.raises(ValueError, match=f"value version {version} of .* is unknown"):
        decode(key, version.to_bytes(2, "big", signed=True) + noise)
    with pytest.raises(ValueError):  # noqa: PT011 - which field is missing depends on the record
        decode(key[:-1], None)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([0, 1, 2, 3, 5, 6, 7, 8, 1000]), st.binary(max_size=60), st.integers(0, 4), st.binary(max_size=60)
)
def test_random_bytes_are_refused_or_are_a_record(kind: int, key: bytes, version: int, value: bytes) -> None:
    try:
        entry = decode(kind.to_bytes(2, "big") + key, version.to_bytes(2, "big") + value)
    except ValueError:
        return
    assert entry is not None
    assert decode(*encode(entry)) == entry


def test_null_bytes_count_as_empty_and_other_negative_lengths_are_refused() -> None:
    reader = FieldReader(b"\xff\xff\xff\xff\x00\x00\x00\x01a\x00\x00\x00\x00")
    assert [reader.blob(), reader.blob(), reader.blob()] == [b"", b"a", b""]
    with pytest.raises(ValueError, match="position"):
        FieldReader(b"\xff\xff\xff\xfe").blob()


def test_a_reader_does_not_believe_in_large_arrays() -> None:
    reader = FieldReader(b"\x7f\xff\xff\xff")
    with pytest.raises(ValueError, match="an array of"):
        reader.array(reader.int8)
    endless = FieldReader(b"\xff" * 10)
    with pytest.raises(ValueError, match="has no end"):
        endless.varint()


def test_the_topics_of_a_share_group_are_read_in_both_of_kafkas_lists() -> None:
    """Kafka lists the topics that it initializes apart from those that are ready; one list is enough here."""
    key = bytes.fromhex("000f 0001 67")
    first, second = UUID(int=1), UUID(int=2)
    value = (
        bytes.fromhex("0000 02") + first.bytes + bytes.fromhex("02 61 03 00000000 00000002 00")  # "a": 0 and 2
        + bytes.fromhex("02") + second.bytes + bytes.fromhex("02 62 02 00000001 00")  # "b": 1
        + bytes.fromhex("01 00")  # nothing is deleted, no tagged field
    )  # fmt: skip
    entry = decode(key, value)
    assert entry is not None
    assert entry.key == e.SharedTopicsKey("g")
    assert entry.value == e.SharedTopicsValue(frozenset({(first, 0), (first, 2), (second, 1)}))
