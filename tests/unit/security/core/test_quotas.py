"""Entities, precedence, values and filters of quotas, as in Apache Kafka."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.model.errors import InvalidRequest, KafkaError, KafkaStorageError, UnsupportedVersion
from tidemill.security.core.quotas import (
    ABSENT,
    CLIENT_ID,
    ENTITY_NAME_CHARS_MAX,
    IP,
    USER,
    QuotaEntity,
    QuotaKind,
    QuotaTable,
    applied_levels,
    applying,
    decode_entity,
    decode_values,
    edited_values,
    entity_id,
    parse_entity,
    parse_filter,
    parse_kind,
    parse_value,
)

Entries = list[tuple[str, str | None]]

LEVELS: list[Entries] = [
    [(USER, "ann"), (CLIENT_ID, "app")],
    [(USER, "ann"), (CLIENT_ID, None)],
    [(USER, "ann")],
    [(USER, None), (CLIENT_ID, "app")],
    [(USER, None), (CLIENT_ID, None)],
    [(USER, None)],
    [(CLIENT_ID, "app")],
    [(CLIENT_ID, None)],
]
"""The order of the levels in Kafka's documentation."""
SHARED_BY = [
    ("ann", "app"),
    ("ann", "app"),
    ("ann", ABSENT),
    ("ann", "app"),
    ("ann", "app"),
    ("ann", ABSENT),
    (ABSENT, "app"),
    (ABSENT, "app"),
]


def entity(*entries: tuple[str, str | None]) -> QuotaEntity:
    return parse_entity(entries)


@given(st.sets(st.integers(0, 7), min_size=1))
def test_the_first_level_that_has_a_quota_wins(present: set[int]) -> None:
    table = QuotaTable({entity(*LEVELS[at]): {QuotaKind.FETCH: float(at + 1)} for at in present})
    found = table.of_client(QuotaKind.FETCH, "ann", "app")
    first = min(present)
    assert found == (float(first + 1), SHARED_BY[first])
    assert table.of_client(QuotaKind.PRODUCE, "ann", "app") is None
    assert table.limits(QuotaKind.FETCH)
    assert not table.limits(QuotaKind.PRODUCE)


def test_levels_are_in_the_order_of_kafka() -> None:
    looked_up = [level for level, _ in applied_levels("ann", "app")]
    named: list[dict[str, str | None]] = [dict(entries) for entries in LEVELS]
    assert looked_up == [(each.get(USER, ABSENT), each.get(CLIENT_ID, ABSENT)) for each in named]


def test_each_kind_has_its_own_level() -> None:
    table = QuotaTable(
        {
            entity((USER, "ann")): {QuotaKind.PRODUCE: 10.0},
            entity((CLIENT_ID, None)): {QuotaKind.PRODUCE: 20.0, QuotaKind.FETCH: 30.0},
        }
    )
    assert table.of_client(QuotaKind.PRODUCE, "ann", "app") == (10.0, ("ann", ABSENT))
    assert table.of_client(QuotaKind.FETCH, "ann", "app") == (30.0, (ABSENT, "app"))
    assert table.of_client(QuotaKind.PRODUCE, "bob", "") == (20.0, (ABSENT, ""))


def test_addresses_have_quotas_of_their_own() -> None:
    table = QuotaTable({entity((IP, "10.0.0.1")): {QuotaKind.CONNECTION: 5.0}})
    assert table.limits_connections
    assert table.of_address("10.0.0.1") == 5.0
    assert table.of_address("10.0.0.2") is None
    table = QuotaTable({entity((IP, None)): {QuotaKind.CONNECTION: 7.0}, **table.quotas})
    assert (table.of_address("10.0.0.1"), table.of_address("10.0.0.2")) == (5.0, 7.0)
    assert not QuotaTable().limits_connections


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([], "empty"),
        ([("team", "a")], "unknown quota entity type"),
        ([(USER, "")], "empty user"),
        ([(USER, "a"), (USER, "b")], "twice"),
        ([(USER, "a" * (ENTITY_NAME_CHARS_MAX + 1))], "characters"),
        ([(IP, "10.0.0.1"), (USER, "a")], "two quotas"),
        ([(IP, "somewhere")], "not an IP address"),
    ],
)
def test_wrong_entities(entries: Entries, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        parse_entity(entries)


def test_equal_entities_have_one_id() -> None:
    one = entity((CLIENT_ID, None), (USER, "ann"))
    other = entity((USER, "ann"), (CLIENT_ID, None))
    assert one == other
    assert entity_id(one) == entity_id(other)
    assert str(one) == "user ann, default client-id"
    assert entity((IP, "::ffff:10.0.0.1")) == entity((IP, "10.0.0.1"))


@given(st.sampled_from(LEVELS), st.text(min_size=1, max_size=20))
def test_an_id_is_read_back(entries: Entries, name: str) -> None:
    made = parse_entity([(kind, name if found else None) for kind, found in entries])
    assert decode_entity(entity_id(made)) == made


@pytest.mark.parametrize("text", ["", "{}", "[]", '[["user"]]', '[["team","a"]]', "[1]", '[["user",1]]'])
def test_an_unreadable_id(text: str) -> None:
    with pytest.raises(KafkaStorageError):
        decode_entity(text)


@pytest.mark.parametrize(
    ("entries", "key", "value", "reason"),
    [
        ([(USER, "a")], "producer_byte_rate", 0.0, "greater than 0"),
        ([(USER, "a")], "producer_byte_rate", -1.0, "greater than 0"),
        ([(USER, "a")], "request_percentage", math.nan, "greater than 0"),
        ([(USER, "a")], "request_percentage", math.inf, "greater than 0"),
        ([(USER, "a")], "consumer_byte_rate", 1.5, "whole number"),
        ([(USER, "a")], "consumer_byte_rate", 1e30, "too large"),
        ([(IP, "::1")], "connection_creation_rate", 2.0**31, "too large"),
        ([(USER, "a")], "connection_creation_rate", 1.0, "no quota"),
        ([(IP, "::1")], "producer_byte_rate", 1.0, "no quota"),
        ([(USER, "a")], "SCRAM-SHA-256", 1.0, "no quota"),
    ],
)
def test_wrong_values(entries: Entries, key: str, value: float, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        parse_value(parse_entity(entries), key, value)


def test_values() -> None:
    assert parse_value(entity((USER, None)), "request_percentage", 0.5) == (QuotaKind.REQUEST, 0.5)
    assert parse_value(entity((CLIENT_ID, "a")), "producer_byte_rate", 2.0**62) == (QuotaKind.PRODUCE, 2.0**62)
    assert parse_value(entity((IP, None)), "connection_creation_rate", 2.0**31 - 1)[1] == 2.0**31 - 1
    assert parse_kind(entity((IP, None)), "connection_creation_rate") is QuotaKind.CONNECTION


def test_edits_keep_other_quotas_and_those_of_newer_brokers() -> None:
    first = edited_values(None, {QuotaKind.PRODUCE: 1.0, QuotaKind.FETCH: 2.0})
    assert first is not None
    assert decode_values(first) == {QuotaKind.PRODUCE: 1.0, QuotaKind.FETCH: 2.0}
    second = edited_values(first.replace(b"producer", b"future"), {QuotaKind.FETCH: None, QuotaKind.REQUEST: 3.0})
    assert second is not None
    assert b"future_byte_rate" in second
    assert decode_values(second) == {QuotaKind.REQUEST: 3.0}
    assert edited_values(first, {QuotaKind.PRODUCE: None, QuotaKind.FETCH: None}) is None
    assert edited_values(b"not JSON", {QuotaKind.FETCH: 4.0}) == b'{"consumer_byte_rate":4.0}'
    with pytest.raises(KafkaStorageError):
        decode_values(b"[]")


ENTITIES = [entity(*entries) for entries in LEVELS] + [entity((IP, "10.0.0.1")), entity((IP, None))]


@pytest.mark.parametrize(
    ("components", "strict", "selected"),
    [
        ([], False, ENTITIES),
        ([], True, []),
        ([(USER, 0, "ann")], False, ENTITIES[0:3]),
        ([(USER, 0, "ann")], True, [ENTITIES[2]]),
        ([(USER, 1, None)], False, ENTITIES[3:6]),
        ([(USER, 2, None)], True, [ENTITIES[2], ENTITIES[5]]),
        ([(USER, 2, None), (CLIENT_ID, 1, None)], True, [ENTITIES[1], ENTITIES[4]]),
        ([(CLIENT_ID, 0, "app"), (USER, 0, "bob")], False, []),
        ([(IP, 0, "::ffff:10.0.0.1")], True, [ENTITIES[8]]),
        ([(IP, 0, "nowhere")], True, []),
        ([(IP, 2, None)], False, ENTITIES[8:]),
    ],
)
def test_filters(components: list[tuple[str, int, str | None]], strict: bool, selected: list[QuotaEntity]) -> None:
    wanted = parse_filter(components, is_strict=strict)
    assert [each for each in ENTITIES if wanted.selects(each)] == selected


@pytest.mark.parametrize(
    ("components", "kind"),
    [
        ([("", 0, "a")], InvalidRequest),
        ([("team", 0, "a")], UnsupportedVersion),
        ([(USER, 0, None)], InvalidRequest),
        ([(USER, 1, "a")], InvalidRequest),
        ([(USER, 2, "a")], InvalidRequest),
        ([(USER, 3, None)], InvalidRequest),
        ([(USER, 0, "a"), (USER, 2, None)], InvalidRequest),
        ([(IP, 0, "::1"), (USER, 2, None)], InvalidRequest),
    ],
)
def test_wrong_filters(components: list[tuple[str, int, str | None]], kind: type[KafkaError]) -> None:
    with pytest.raises(kind):
        parse_filter(components, is_strict=False)


def test_every_level_is_another_one() -> None:
    levels = [level for level, _ in applied_levels("ann", "app")]
    assert all(one != other for one, other in itertools.combinations(levels, 2))


def test_the_quotas_of_a_client_come_from_its_closest_entities() -> None:
    ann, app, default = (
        QuotaEntity(((kind, name),)) for kind, name in ((USER, "ann"), (CLIENT_ID, "app"), (USER, None))
    )
    quotas = {
        ann: {QuotaKind.PRODUCE: 1.0},
        app: {QuotaKind.PRODUCE: 2.0, QuotaKind.FETCH: 3.0},
        default: {QuotaKind.REQUEST: 4.0, QuotaKind.PRODUCE: 5.0},
    }
    assert applying(quotas, "ann", "app", None) == {
        QuotaKind.PRODUCE: (ann, 1.0),
        QuotaKind.REQUEST: (default, 4.0),
        QuotaKind.FETCH: (app, 3.0),
    }
    assert applying(quotas, None, "app", None)[QuotaKind.PRODUCE] == (default, 5.0)
    assert applying({app: quotas[app]}, None, None, None) == {}


def test_the_quota_of_an_address_comes_before_the_default() -> None:
    here, default = QuotaEntity(((IP, "10.0.0.7"),)), QuotaEntity(((IP, None),))
    quotas = {default: {QuotaKind.CONNECTION: 9.0}, here: {QuotaKind.CONNECTION: 2.0}}
    assert applying(quotas, None, None, "::ffff:10.0.0.7") == {QuotaKind.CONNECTION: (here, 2.0)}
    assert applying(quotas, "ann", "app", "10.0.0.8") == {QuotaKind.CONNECTION: (default, 9.0)}
