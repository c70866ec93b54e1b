"""Transaction scenarios in text: a command after `>`, the expected result on the lines below.

> init ID [timeout=MS] [as PID/EPOCH]      an identity, or an error
> add ID PID/EPOCH PARTITION...            ok, or an error
> write ID PID/EPOCH PARTITION             whether a transactional batch may be appended there
> end ID PID/EPOCH commit|abort [v5]       the identity for the next transaction
> markers ID                               the markers that are due; then they are written
> wait MS                                  the time passes; ids that time out are printed
> crash                                    the coordinator forgets all but its journal
> show ID                                  the state
> set ID PID/EPOCH                         put an id at an epoch that would take long to reach
"""

from pathlib import Path

import pytest

from tidemill.model.errors import TidemillError
from tidemill.model.topics import TopicPartition
from tidemill.transactions.core import rules
from tidemill.transactions.core.records import write_key, write_value
from tidemill.transactions.core.rules import Decision, InitProducer
from tidemill.transactions.core.state import NO_PRODUCER, ProducerIdAndEpoch, Transaction
from tidemill.transactions.core.table import TransactionTable

SCENARIOS = sorted((Path(__file__).parent / "transactions").glob("*.txt"))
TIMEOUT_MS = 60_000


class Stage:
    """The pure core, with a journal."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.spare = 0
        self.journal: list[tuple[bytes, bytes | None]] = []
        self.table = TransactionTable()

    def run(self, line: str) -> list[str]:
        verb, *words = line.split()
        try:
            result: list[str] = getattr(self, f"do_{verb}")(*words)
        except TidemillError as error:
            return [type(error).__name__]
        return result

    def do_init(self, name: str, *words: str) -> list[str]:
        timeout_ms, given = TIMEOUT_MS, NO_PRODUCER
        for index, word in enumerate(words):
            if word.startswith("timeout="):
                timeout_ms = int(word.removeprefix("timeout="))
            if word == "as":
                given = identity(words[index + 1])
        request = InitProducer(name, timeout_ms, given)
        request.check(timeout_ms_max=900_000)
        return self.apply(
            rules.init_producer(self.table.get(name), request, spare_producer_id=self.spare, now_ms=self.now_ms)
        )

    def do_add(self, name: str, who: str, *names: str) -> list[str]:
        wanted = {partition(each) for each in names}
        self.apply(rules.add_partitions(self.table.get(name), identity(who), wanted, self.now_ms))
        return ["ok"]

    def do_write(self, name: str, who: str, where: str) -> list[str]:
        rules.check_partition(self.table.get(name), identity(who), partition(where))
        return ["ok"]

    def do_end(self, name: str, who: str, wish: str, version: str = "") -> list[str]:
        return self.apply(
            rules.end_transaction(
                self.table.get(name),
                identity(who),
                commit=wish == "commit",
                bump=version == "v5",
                spare_producer_id=self.spare,
                now_ms=self.now_ms,
            )
        )

    def do_markers(self, name: str) -> list[str]:
        known = self.known(name)
        if not known.state.preparing:
            return ["nothing to mark"]
        wish = "commit" if known.commits else "abort"
        reported = [f"{where} {text(known.identity)} {wish}" for where in sorted(known.partitions)]
        self.apply(Decision(rules.complete(known, self.now_ms)))
        return reported or ["no partition"]

    def do_wait(self, span_ms: str) -> list[str]:
        self.now_ms += int(span_ms)
        late = self.table.late(self.now_ms)
        for name in late:
            self.apply(rules.time_out(self.known(name), self.now_ms))
        return [f"{name} timed out" for name in late] or ["nothing timed out"]

    def do_crash(self) -> list[str]:
        before = {known.transactional_id: known for known in self.table}
        self.table = TransactionTable()
        for key, value in self.journal:
            self.table.replay(key, value, self.now_ms, self.now_ms)
        assert {known.transactional_id: known for known in self.table} == before
        return [f"{name} is unfinished" for name in self.table.unfinished()] or ["nothing is unfinished"]

    def do_show(self, name: str) -> list[str]:
        known = self.known(name)
        where = " ".join(str(each) for each in sorted(known.partitions))
        return [f"{known.state.title} {text(known.identity)} {where}".rstrip()]

    def do_set(self, name: str, who: str) -> list[str]:
        """Put an id at an epoch that would take 32,000 steps to reach."""
        self.apply(Decision(Transaction(name, identity(who), timeout_ms=TIMEOUT_MS, updated_ms=self.now_ms)))
        self.spare = max(self.spare, identity(who).producer_id + 1)
        return ["ok"]

    def known(self, name: str) -> Transaction:
        found = self.table.get(name)
        assert found is not None, name
        return found

    def apply(self, outcome: Decision) -> list[str]:
        if outcome.change is not None:
            record = write_key(outcome.change.transactional_id), write_value(outcome.change)
            self.journal.append(record)
            self.table.replay(*record, self.now_ms)
        if outcome.uses(self.spare):
            self.spare += 1
        return [type(outcome.error).__name__ if outcome.error else text(outcome.identity)]


def identity(text: str) -> ProducerIdAndEpoch:
    producer_id, epoch = text.split("/")
    return ProducerIdAndEpoch(int(producer_id), int(epoch))


def text(who: ProducerIdAndEpoch) -> str:
    return f"{who.producer_id}/{who.epoch}"


def partition(name: str) -> TopicPartition:
    topic, _, index = name.rpartition("-")
    return TopicPartition(topic, int(index))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(scenario: Path) -> None:
    stage, played = Stage(), []
    lines = scenario.read_text().splitlines()
    for line in lines:
        if line.startswith(">"):
            played += [line, *stage.run(line[1:])]
        elif not line or line.startswith("#"):
            played.append(line)
    assert "\n".join(played) == "\n".join(lines)


def test_there_are_scenarios() -> None:
    assert len(SCENARIOS) >= 6
