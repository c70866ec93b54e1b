"""Options of the sink: what they mean, and one line for each that is wrong."""

import pytest

from tidemill.pipelines.errors import WrongOption
from tidemill.pipelines.topic.core.options import BATCH_TIMEOUT_MS, STREAM_TIMEOUT_MS, check_columns, parse_sink
from tidemill.records.compression import Codec

SERVERS = {"kafka.bootstrap.servers": "h:9092"}


def test_security_goes_to_the_client_as_it_is() -> None:
    security = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "ann",
        "sasl.password": "secret",
        "ssl.ca.location": "ca.pem",
    }
    given = {**SERVERS, **{f"kafka.{name}": value for name, value in security.items()}}
    assert parse_sink({**given, "topic": "a"}, streaming=False).client.items() >= security.items()


def test_the_partitioner_of_the_sink() -> None:
    given = {**SERVERS, "topic": "a"}
    assert parse_sink(given, streaming=False).partitioner == "consistent_random"
    assert parse_sink({**given, "partitioner": "murmur2_random"}, streaming=False).partitioner == "murmur2_random"
    with pytest.raises(WrongOption, match="partitioner: 'sticky' is none of"):
        parse_sink({**given, "partitioner": "sticky"}, streaming=False)


def test_the_level_of_a_codec_is_that_of_its_own_option() -> None:
    levels = {"kafka.compression.zstd.level": "7", "kafka.compression.gzip.level": "9"}
    for codec, level in (("zstd", 7), ("gzip", 9), ("lz4", None)):
        found = parse_sink({**SERVERS, "kafka.compression.type": codec, **levels}).compression
        assert (found.codec.name.lower(), found.level) == (codec, level)
    assert parse_sink({**SERVERS, "kafka.compression.type": "zstd"}).compression.level == 1
    with pytest.raises(WrongOption, match=r"^kafka\.compression\.gzip\.level: 10 is not between 1 and 9$"):
        parse_sink({**SERVERS, "kafka.compression.gzip.level": "10"})


def test_the_sink() -> None:
    options = parse_sink({**SERVERS, "topic": "a", "kafka.compression.type": "LZ4", "kafka.batch.size": "1000"})
    assert (options.topic, options.compression.codec, options.batch_bytes) == ("a", Codec.LZ4, 1000)
    assert options.transactional
    assert (options.timeout_ms, options.checkpoint) == (BATCH_TIMEOUT_MS, None)
    stream = parse_sink({**SERVERS, "topic": "a", "checkpointLocation": "/c"}, streaming=True)
    assert (stream.timeout_ms, stream.checkpoint) == (STREAM_TIMEOUT_MS, "/c")
    assert parse_sink({**SERVERS, "kafka.transaction.timeout.ms": "7"}, streaming=True).timeout_ms == 7
    check_columns({"key": "binary", "value": "string", "offset": "bigint"}, "a")
    with pytest.raises(WrongOption, match="the column partition is bigint; it must be int"):
        check_columns({"value": "string", "partition": "bigint"}, "a")
