"""`tidemill produce` and `tidemill consume`."""

import json
import os
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.support.command_line import CommandLine

from tidemill.cli import produce

FAILED, WRONG_USE = 1, 2
WAIT_S = 30


def read(tidemill: CommandLine, topic: str, *more: str) -> list[str]:
    return tidemill.fine("consume", topic, "--from-beginning", *more).lines


def test_messages_and_their_places(tidemill: CommandLine) -> None:
    written = tidemill.fine("produce", "said", "--key", "ada", "-m", "one", "-m", "zwei €")
    assert written.lines == ["said partition 0 offset 0", "said partition 0 offset 1"]
    assert read(tidemill, "said", "--format", r"%t %p/%o %k=%v%%\n") == ["said 0/0 ada=one%", "said 0/1 ada=zwei €%"]


def test_standard_input_is_one_record_per_line(tidemill: CommandLine) -> None:
    assert tidemill.fine("produce", "piped", stdin=b"a\nb\r\n\nd").lines[-1] == "piped partition 0 offset 3"
    assert read(tidemill, "piped") == ["a", "b", "", "d"]
    many = tidemill.fine("produce", "piped", stdin=b"x\n" * 1_000)
    assert many.out == "1,000 records written to piped\n"
    assert tidemill.fine("produce", "piped", "--json", stdin=b"y\n").json()["records"] == 1


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_file_with_keys_headers_and_a_codec(tidemill: CommandLine, tmp_path: Path, codec: str) -> None:
    file = tmp_path / "orders.txt"
    file.write_bytes(b"ada:tea\nbob:coffee:black\n")
    topic = f"file-{codec}"
    tidemill.fine("topic", "create", topic)
    words = ("--key-separator", ":", "-H", "source=shop", "-H", "n=1", "--compression", codec)
    tidemill.fine("produce", topic, "--file", str(file), *words)
    assert read(tidemill, topic, "--format", r"%k\t%v\t%h\n") == [
        "ada\ttea\tsource=shop,n=1",
        "bob\tcoffee:black\tsource=shop,n=1",
    ]


def test_positions_are_returned_in_the_order_of_the_input(tidemill: CommandLine) -> None:
    tidemill.fine("topic", "create", "spread", "-p", "4")
    keys = [f"k{number}" for number in range(20)]
    written = tidemill.fine(
        "produce", "spread", "--key-separator", ":", stdin="".join(f"{k}:{k}\n" for k in keys).encode()
    )
    reported = [line.split() for line in written.lines]
    kept = dict(line.split() for line in read(tidemill, "spread", "--format", r"%k %p/%o\n"))
    assert [f"{words[2]}/{words[4]}" for words in reported] == [kept[key] for key in keys]


def test_a_chosen_partition_and_acks(tidemill: CommandLine) -> None:
    tidemill.fine("topic", "create", "wide", "-p", "3")
    for acks in ("0", "1", "all"):
        tidemill.fine("produce", "wide", "--partition", "1", "--acks", acks, "-m", acks)
    assert read(tidemill, "wide", "--partition", "1") == ["0", "1", "all"]
    assert read(tidemill, "wide", "--partition", "0") == []
    for words in (["produce", "wide", "-m", "x"], ["consume", "wide"]):
        assert "wide has partitions 0 to 2, not 7" in tidemill.refused(FAILED, *words, "--partition", "7")


def test_records_without_a_key_take_the_partitions_in_turn(tidemill: CommandLine) -> None:
    tidemill.fine("topic", "create", "turns", "-p", "3")
    written = tidemill.fine("produce", "turns", stdin=b"x\n" * 9)
    partitions = [int(line.split()[2]) for line in written.lines]
    assert partitions == [(partitions[0] + turn) % 3 for turn in range(9)]


def test_options_decide_the_first_offset_that_is_read(tidemill: CommandLine) -> None:
    tidemill.fine("produce", "places", stdin=b"".join(b"%d\n" % number for number in range(10)))

    def consume(*words: str) -> list[str]:
        return tidemill.fine("consume", "places", *words).lines

    assert consume("--offset", "7") == ["7", "8", "9"]
    assert consume("--offset", "-2") == ["8", "9"]
    assert consume("--offset", "3", "--max", "2") == ["3", "4"]
    assert consume("--offset", "10") == []
    assert consume("--from", "1h ago", "--max", "1") == ["0"]
    assert consume("--from", "now") == []
    assert consume("--from", "2020-01-01", "-n", "3") == ["0", "1", "2"]
    assert consume("--from-beginning", "--follow", "--max", "10")[-1] == "9"
    assert "has offsets 0 to 10, not 99" in tidemill.refused(FAILED, "consume", "places", "--offset", "99")


def test_json_lines(tidemill: CommandLine) -> None:
    tidemill.fine("produce", "facts", "-k", "ada", "-H", "a=1", "-H", "a=2", "-m", "tea")
    [line] = read(tidemill, "facts", "--json")
    record = json.loads(line)
    assert record.pop("timestamp") > 0
    assert record == {
        "topic": "facts",
        "partition": 0,
        "offset": 0,
        "key": "ada",
        "value": "tea",
        "headers": [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}],
    }


def test_bytes_that_are_not_utf8_are_complete_in_json(tidemill: CommandLine) -> None:
    tidemill.fine("produce", "raw", "--key-separator", ":", stdin=b"k\xff:v\xfe\n")
    [line] = read(tidemill, "raw", "--json")
    record = json.loads(line)
    assert {name: record[name] for name in ("key", "key_base64", "value", "value_base64")} == {
        "key": "k\ufffd",
        "key_base64": "a/8=",
        "value": "v\ufffd",
        "value_base64": "dv4=",
    }
    assert "is not UTF-8" in tidemill.refused(WRONG_USE, "produce", "raw", "-m", "\udcff")


def test_a_group_continues_at_its_committed_offset(tidemill: CommandLine) -> None:
    tidemill.fine("produce", "shared", stdin=b"1\n2\n3\n")
    assert tidemill.fine("consume", "shared", "--group", "team", "--max", "2").lines == ["1", "2"]
    assert tidemill.fine("consume", "shared", "--group", "team", "--max", "1").lines == ["3"]


def test_a_command_for_each_record(tidemill: CommandLine) -> None:
    tidemill.fine("produce", "jobs", "-k", "k", stdin=b"1\n2\n3\n4\n")
    command = 'echo "$TIDEMILL_TOPIC $TIDEMILL_PARTITION/$TIDEMILL_OFFSET $TIDEMILL_KEY $(cat)"'
    ran = tidemill.fine("consume", "jobs", "--exec", command, "--parallel", "4", "--max", "3", "--group", "workers")
    assert ran.lines == ["jobs 0/0 k 1", "jobs 0/1 k 2", "jobs 0/2 k 3"]
    assert "3 records handled, 0 tried again, 0 dead letters" in ran.err
    ran = tidemill.fine("consume", "jobs", "--exec", command, "--max", "1", "--group", "workers")
    assert ran.lines == ["jobs 0/3 k 4"]


def test_a_command_gets_every_key(tidemill: CommandLine) -> None:
    producer = Producer({"bootstrap.servers": os.environ["TIDEMILL_BOOTSTRAP"]})
    for key in (b"\0\0\0\x07", b"caf\xe9", None, b"x" * 200_000):
        producer.produce("keys", b"", key=key, partition=0)
    assert producer.flush(WAIT_S) == 0
    command = 'echo "$TIDEMILL_OFFSET $TIDEMILL_KEY_HEX $(printf %s "$TIDEMILL_KEY" | od -An -tx1 | tr -d " ")"'
    ran = tidemill.fine("consume", "keys", "--exec", command, "--max", "4", "--attempts", "1")
    assert ran.lines == ["0 00000007 ", "1 636166e9 636166e9", "2  ", "3  "]


@pytest.mark.parametrize(("command", "why"), [("no-such-command-here", "was not found"), ("/etc", "cannot be run")])
def test_a_command_that_cannot_be_run_buries_nothing(tidemill: CommandLine, command: str, why: str) -> None:
    tidemill.fine("produce", "typo", "-m", "x")
    line = tidemill.refused_after_remarks(FAILED, "consume", "typo", "--exec", command, "--dead-letter", "typo.dlq")
    assert f"the command '{command}', or one in it, {why}" in line
    assert "there is no topic" in tidemill.refused(FAILED, "consume", "typo.dlq")


def test_a_command_that_keeps_failing(tidemill: CommandLine) -> None:
    tidemill.fine("produce", "hard", "-m", "x")
    words = ("consume", "hard", "--exec", "exit 3", "--attempts", "2", "--max", "1")
    line = tidemill.refused_after_remarks(FAILED, *words, "--group", "halting")
    assert "failed 2 times" in line
    assert "exit code 3 of 'exit 3'" in line
    tidemill.fine(*words, "--group", "burying", "--dead-letter", "hard.dlq")
    [letter] = read(tidemill, "hard.dlq", "--json")
    assert {"name": "tidemill-attempts", "value": "2"} in json.loads(letter)["headers"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["consume", "nothing"], FAILED, "there is no topic nothing"),
        (["consume", "nothing", "--exec", "cat"], FAILED, "there is no topic nothing"),
        (["consume", "x", "--from-beginning", "--offset", "1"], WRONG_USE, "give one of"),
        (["consume", "x", "--group", "g", "--offset", "1"], WRONG_USE, "a group continues at its committed offsets"),
        (["consume", "x", "--parallel", "3"], WRONG_USE, "--exec"),
        (["consume", "x", "--max", "0"], WRONG_USE, "--max"),
        (["consume"], WRONG_USE, "Missing argument 'TOPIC'"),
        (["produce", "x", "-m", "a", "-f", "b"], WRONG_USE, "not both"),
        (["produce", "x", "-f", "/no/such/file"], FAILED, "cannot read /no/such/file: No such file or directory"),
        (["produce", "x", "-m", "a", "--key-separator", ":"], FAILED, "this line has no ':': a"),
        (["produce", "x", "-m", "a", "--key-separator", ""], WRONG_USE, "--key-separator is empty; give the text"),
        (["produce", "x", "-m", "a", "--key-separator", ":", "-k", "b"], WRONG_USE, "--key or --key-separator, not"),
        (["produce", "x", "-m", "a", "--compression", "brotli"], WRONG_USE, "none, gzip, snappy, lz4, zstd"),
        (["produce", "x", "-m", "a", "--acks", "7"], WRONG_USE, "--acks 7 is not one of 0, 1, all"),
        (["produce", "x", "-m", "a", "-H", "novalue"], WRONG_USE, "is not name=value"),
        (["produce", "a b", "-m", "a"], FAILED, "'a b' is not a topic name"),
    ],
)
def test_refusals_are_one_line(tidemill: CommandLine, words: list[str], code: int, said: str) -> None:
    assert said in tidemill.refused(code, *words)


def test_a_record_that_is_too_large(tidemill: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    tidemill.fine("topic", "create", "small", "-c", "max.message.bytes=1000")
    said = tidemill.refused(FAILED, "produce", "small", stdin=b"x" * 5_000)
    assert "too large; raise the limit with: tidemill topic alter small --config max.message.bytes=N" in said
    assert "after 0 records: " in said
    monkeypatch.setattr(produce, "LINE_BYTES_MAX", 2_000)
    said = tidemill.refused(FAILED, "produce", "small", stdin=b"x" * 5_000)
    assert "a record has 5,000 bytes, more than the limit of this command, 2,000" in said


@pytest.mark.parametrize(
    ("setting", "words", "advice"),
    [
        ("cleanup.policy=compact", [], "a topic with cleanup.policy=compact rejects records without a key"),
        ("tidemill.schedule.enable=true", ["-H", "tidemill-delay-ms=soon"], "tidemill-move-to are whole milliseconds"),
    ],
)
def test_a_record_that_its_topic_does_not_take(
    tidemill: CommandLine, setting: str, words: list[str], advice: str
) -> None:
    topic = f"choosy-{setting.split('.', maxsplit=1)[0]}"
    tidemill.fine("topic", "create", topic, "--config", setting)
    assert advice in tidemill.refused(FAILED, "produce", topic, "-m", "x", *words)


def test_a_time_that_is_none(tidemill: CommandLine) -> None:
    tidemill.fine("produce", "timed", "-m", "x")
    assert "is not a time" in tidemill.refused(WRONG_USE, "consume", "timed", "--from", "tomorrow")


def test_a_file_that_is_not_there_makes_no_topic(tidemill: CommandLine) -> None:
    tidemill.refused(FAILED, "produce", "never", "-f", "/no/such/file")
    assert "never" not in tidemill.fine("topic", "list").out


@pytest.mark.parametrize("wrong", ["%z", "100%"])
def test_a_format_with_an_unknown_field(tidemill: CommandLine, wrong: str) -> None:
    tidemill.fine("topic", "create", "shaped", "--if-not-exists")
    said = tidemill.refused(WRONG_USE, "consume", "shaped", "--format", wrong)
    assert said.endswith("use %t %o %p %k %v %T %h %%")
