"""Options of the source: what they mean, and one line for each that is wrong."""

import pytest

from tidemill.model.topics import TopicPartition
from tidemill.pipelines.errors import WrongOption
from tidemill.pipelines.source.core.options import COLUMNS, ROWS_PER_BATCH, columns_of, parse_source
from tidemill.pipelines.source.core.positions import EARLIEST, LATEST

SERVERS = {"kafka.bootstrap.servers": "h:9092"}
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def test_the_defaults_are_those_of_sparks_kafka_source() -> None:
    batch = parse_source({**SERVERS, "subscribe": "b, a,,b"}, streaming=False)
    assert batch.subscription.topics == ("a", "b")
    assert (batch.starting.everywhere, batch.ending.everywhere) == (EARLIEST, LATEST)
    assert parse_source({**SERVERS, "subscribe": "a"}, streaming=True).starting.everywhere == LATEST
    assert batch.fail_on_data_loss
    assert not batch.include_headers
    assert batch.committed  # the one difference: Java's consumers read what may be aborted
    assert batch.client == {"bootstrap.servers": "h:9092"}


@pytest.mark.parametrize(
    ("given", "committed"),
    [
        ({}, True),
        ({"kafka.isolation.level": "read_committed"}, True),
        ({"kafka.isolation.level": "read_uncommitted"}, False),
    ],
)
def test_the_isolation_level_decides_which_records_are_read(given: dict[str, str], committed: bool) -> None:
    assert parse_source({**SERVERS, "subscribe": "a", **given}, streaming=False).committed is committed


def test_filters_are_pushed_down_and_unreadable_records_are_skipped_on_request_only() -> None:
    given = {**SERVERS, "subscribe": "a"}
    plain = parse_source(given, streaming=False)
    assert (plain.push_filters, plain.fail_on_unreadable) == (False, True)
    said = parse_source({**given, "pushFilters": "true", "failOnUnreadable": "false"}, streaming=False)
    assert (said.push_filters, said.fail_on_unreadable) == (True, False)


def test_names_come_in_any_case() -> None:
    given = {"KAFKA.bootstrap.servers": "h:1", "SUBSCRIBE": "a", "maxoffsetspertrigger": "5", "FailOnDataLoss": "FALSE"}
    options = parse_source({**given, "kafka.group.id": "g", "kafkaConsumer.pollTimeoutMs": "1"}, streaming=True)
    assert (options.max_offsets, options.fail_on_data_loss, options.group) == (5, False, "g")
    assert columns_of({**SERVERS, "subscribe": "a", "includeheaders": "true"}) == (*COLUMNS, "headers")
    assert columns_of({**SERVERS, "subscribe": "a"}) == COLUMNS


@pytest.mark.parametrize(
    "given", [{"subscribe": "a"}, SERVERS, {**SERVERS, "subscribe": "a", "kafka.security.protocol": "TLS"}]
)
def test_a_wrong_option_fails_before_the_query_starts(given: dict[str, str]) -> None:
    with pytest.raises(WrongOption):
        columns_of(given)


def test_security_goes_to_the_client_as_it_is() -> None:
    security = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "ann",
        "sasl.password": "secret",
        "ssl.ca.location": "ca.pem",
    }
    given = {**SERVERS, **{f"kafka.{name}": value for name, value in security.items()}}
    assert parse_source({**given, "subscribe": "a"}, streaming=True).client == {
        "bootstrap.servers": "h:9092",
        **security,
    }


def test_a_streaming_query_without_a_limit_has_one() -> None:
    given = {**SERVERS, "subscribe": "a"}
    assert parse_source(given, streaming=True).max_bytes == 512 * 1024 * 1024
    assert parse_source({**given, "minOffsetsPerTrigger": "5"}, streaming=True).max_bytes == 512 * 1024 * 1024
    assert parse_source({**given, "maxOffsetsPerTrigger": "5"}, streaming=True).max_bytes is None
    assert parse_source(given, streaming=False).max_bytes is None


def test_max_trigger_delay_is_read_with_its_unit() -> None:
    given = {**SERVERS, "subscribe": "a", "minOffsetsPerTrigger": "5"}
    assert parse_source(given, streaming=True).max_delay_ms == 15 * 60_000
    for text, delay_ms in (("250", 250), ("500ms", 500), ("10 s", 10_000), ("2min", 120_000), ("1h", 3_600_000)):
        assert parse_source({**given, "maxTriggerDelay": text}, streaming=True).max_delay_ms == delay_ms


def test_a_time_wins_over_times_and_times_over_offsets() -> None:
    given = {**SERVERS, "subscribe": "a", "startingOffsets": "latest"}
    with_times = {**given, "startingOffsetsByTimestamp": '{"a": {"0": 7}}'}
    assert parse_source(given, streaming=True).starting.everywhere == LATEST
    assert parse_source(with_times, streaming=True).starting.each == {A0: 7}
    assert parse_source({**with_times, "startingTimestamp": "9"}, streaming=True).starting.everywhere == 9


def test_assigned_partitions() -> None:
    options = parse_source({**SERVERS, "assign": '{"a": [1, 0, 1]}'}, streaming=True)
    assert options.subscription.assigned == (A0, A1)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (
            {"subscribe": "a", "assign": "{}"},
            "set one of assign, subscribe, subscribePattern; found assign and subscribe",
        ),
        ({"subscribe": ","}, "subscribe names no topic"),
        ({"subscribe": "a/b"}, "subscribe: 'a/b' is not a topic name"),
        ({"subscribePattern": "("}, "is not a regular expression"),
        ({"assign": "[0]"}, "assign: '[0]' is not JSON such as"),
        ({"assign": '{"a": []}'}, "assign names no partition"),
        ({"assign": '{"a": ["0"]}'}, "assign: the partitions of a are not a list of numbers"),
        ({"subscribe": "a", "minPartitions": "0"}, "minPartitions: '0' is not a whole number above 0"),
        ({"subscribe": "a", "includeHeaders": "yes"}, "includeHeaders: 'yes' is neither true nor false"),
        ({"subscribe": "a", "kafka.isolation.level": "none"}, "kafka.isolation.level: 'none' is none of"),
        ({"subscribe": "a", "endingOffsets": "latest"}, "endingOffsets is for batch queries"),
        ({"subscribe": "a", "pushFilters": "true"}, "pushFilters is for batch queries"),
        (
            {"subscribe": "a", "failOnDataLos": "true"},
            "option failondatalos does not exist; did you mean failOnDataLoss?",
        ),
        ({"subscribe": "a", "xyz": "1"}, "option xyz does not exist"),
        (
            {"subscribe": "a", "sasl.username": "u"},
            "option sasl.username does not exist; did you mean kafka.sasl.username?",
        ),
        ({"subscribe": "a", "kafka.auto.offset.reset": "earliest"}, "kafka.auto.offset.reset: set startingOffsets"),
        ({"subscribe": "a", "kafka.value.deserializer": "x"}, "convert them in the query: CAST(value AS STRING)"),
        (
            {"subscribe": "a", "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"},
            "set kafka.sasl.username and kafka.sasl.password, or kafka.sasl.jaas.config: ...ScramLoginModule required",
        ),
        ({"subscribe": "a", "maxTriggerDelay": "soon"}, "maxTriggerDelay: 'soon' is not a time such as 500ms"),
        (
            {"subscribe": "a", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "minOffsetsPerTrigger: 9 is more than maxOffsetsPerTrigger, which is 8",
        ),
        ({"subscribe": "a", "startingTimestamp": "now"}, "startingTimestamp: 'now' is not a time in milliseconds"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": "x"}}'}, "startingOffsets: a has '0': 'x'"),
        (
            {"subscribe": "a", "startingOffsets": '{"a": {"0": -3}}'},
            "startingOffsets: -3 is not a valid offset for a-0",
        ),
        ({"subscribe": "a", "startingOffsets": '{"a": 4}'}, "the partitions of a are not an object"),
        ({"subscribe": "a", "startingOffsets": "4"}, "startingOffsets: '4' is not earliest, latest or JSON"),
        ({"subscribe": "a", "startingOffsetsByTimestamp": '{"a": {"0": -1}}'}, "-1 is not a valid time for a-0"),
    ],
)
def test_a_wrong_option_is_reported_in_one_line(given: dict[str, str], line: str) -> None:
    with pytest.raises(WrongOption) as caught:
        parse_source({**SERVERS, **given}, streaming=True)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_batch_query_has_no_limits_of_triggers() -> None:
    for name, value in (("maxOffsetsPerTrigger", "5"), ("maxTriggerDelay", "1s"), ("failOnRecreation", "true")):
        with pytest.raises(WrongOption, match=f"{name} is for streaming queries"):
            parse_source({**SERVERS, "subscribe": "a", name: value}, streaming=False)


def test_the_rows_of_an_arrow_batch_have_a_default() -> None:
    given = {**SERVERS, "subscribe": "a"}
    assert parse_source(given, streaming=True).rows == ROWS_PER_BATCH
    assert parse_source({**given, "rowsPerBatch": "7"}, streaming=True).rows == 7


def test_a_batch_query_cannot_begin_at_the_end() -> None:
    for which, word in (("startingOffsets", "latest"), ("endingOffsets", "earliest")):
        with pytest.raises(WrongOption, match=f"{which}: {word} is not allowed in a batch query"):
            parse_source({**SERVERS, "subscribe": "a", which: word}, streaming=False)
