"""Group scenarios in text: a command after `>`, the expected result on the lines below.

Classic groups (the group is always `g`):
> join NAME [version=N] [instance=I] [protocols=P,Q] [topics=T,U] [type=T] [session=MS] [rebalance=MS]
> enter NAME ...                        join twice, as newer clients do: first for an id
> sync NAME [OTHER=ASSIGNMENT ...]      the leader names the assignments
> beat NAME                             a heartbeat
> leave NAME...
> restart NAME                          the client forgets who it was, except its instance id

Consumer groups:
> topic NAME PARTITIONS
> pulse NAME [topics=T,U] [regex=R] [instance=I] [assignor=A] [epoch=N] [owned=0,1|before]
                                        a heartbeat; the client gives up at once what it must, unless `owned=before`

All:
> commit NAME|- OFFSET                  `-` is an operator, who belongs to no generation
> stage PRODUCER OFFSET / end PRODUCER commit|abort
> fetch [stable]
> show
> delete
> wait MS
> crash                                 the coordinator forgets all but its journal
> journal refuses|works

What is answered to others at the same time follows, one line each: `b: generation 2, led by a`.
"""

from pathlib import Path

import pytest
from tests.support.group_stage import Client, Stage

from tidemill.groups.core.descriptions import describe, describe_consumers
from tidemill.groups.core.messages import Answer, GroupStep, JoinAnswer, SyncAnswer
from tidemill.groups.core.offsets import OffsetCommit
from tidemill.groups.core.subscriptions import read_assignment
from tidemill.model.errors import TidemillError
from tidemill.model.topics import TopicPartition

SCENARIOS = sorted((Path(__file__).parent / "groups").glob("*.txt"))


class Play(Stage):
    """The stage, spoken to in words."""

    def run(self, line: str) -> list[str]:
        verb, *words = line.split()
        try:
            said: list[str] = getattr(self, f"do_{verb}")(*words)
        except TidemillError as error:
            said = [type(error).__name__]
        return said + [f"{name}: {self._in_words(answer)}" for name, answer in self.reported()]

    def _name(self, member_id: str) -> str:
        return next((name for name, client in self.clients.items() if client.member_id == member_id), member_id)

    def _in_words(self, answer: Answer) -> str:
        if isinstance(answer, SyncAnswer):
            return f"assigned {_assignment(answer.assignment)}"
        if not isinstance(answer, JoinAnswer):
            return type(answer).__name__
        if answer.error is not None:
            return f"{type(answer.error).__name__} {answer.member_id}"
        words = f"generation {answer.generation}, {answer.protocol}, led by {self._name(answer.leader)}"
        members = " ".join(self._name(member.member_id) for member in answer.members)
        return words + (f", members {members}" if members else "") + (", as before" if answer.skip_assignment else "")

    def _own(self, name: str) -> list[str]:
        """The member's own answer without its name, the others' with theirs; or that it waits."""
        own = [self._in_words(answer) for who, answer in self.answers if who == name]
        self.answers = [(who, answer) for who, answer in self.answers if who != name]
        return own or ["waits"]

    def _join_options(self, words: tuple[str, ...]) -> dict[str, object]:
        names = {"session": "session_ms", "rebalance": "rebalance_ms", "type": "protocol_type"}
        pairs = (word.split("=", 1) for word in words)
        return {names.get(key, key): int(value) if value.isdecimal() else value for key, value in pairs}

    def do_join(self, name: str, *words: str) -> list[str]:
        self.join("g", name, **self._join_options(words))  # type: ignore[arg-type]  # join's own options
        return self._own(name)

    def do_enter(self, name: str, *words: str) -> list[str]:
        options = self._join_options(words)
        self.join("g", name, **options)  # type: ignore[arg-type]  # join's own options
        self.reported()
        return self.do_join(name, *words)

    def do_sync(self, name: str, *words: str) -> list[str]:
        pairs = (word.split("=", 1) for word in words)
        self.sync("g", name, {who: what.encode() for who, what in pairs})
        return self._own(name)

    def do_beat(self, name: str) -> list[str]:
        self.beat("g", name)
        return ["ok"]

    def do_leave(self, *names: str) -> list[str]:
        left = self.leave("g", *(self.leaver(name) for name in names))
        return [type(each.error).__name__ if each.error else "ok" for each in left]

    def do_restart(self, name: str) -> list[str]:
        self.clients[name] = Client(name, instance_id=self.client(name).instance_id)
        return []

    def do_topic(self, name: str, partitions: str) -> list[str]:
        self.make_topic(name, int(partitions))
        return []

    def do_pulse(self, name: str, *words: str) -> list[str]:
        changes: dict[str, object] = {}
        before = self.client(name).owned
        options = dict(word.split("=", 1) for word in words)
        if "topics" in options:
            changes["topic_names"] = tuple(options["topics"].split(","))
        for word, field in (("regex", "topic_regex"), ("instance", "instance_id"), ("assignor", "server_assignor")):
            if word in options:
                changes[field] = options[word]
        if "epoch" in options:
            changes["member_epoch"] = int(options["epoch"])
        if options.get("owned", "before") != "before":
            topic_id = self.topics["t"].topic_id
            self.client(name).owned = frozenset((topic_id, int(index)) for index in options["owned"].split(","))
        answer = self.pulse("g", name, **changes)
        if options.get("owned") == "before":
            self.client(name).owned = before
        if answer.assigned is None:
            return [f"epoch {answer.member_epoch}"]
        ids = {shape.topic_id: shape.name for shape in self.topics.values()}
        partitions = sorted(f"{ids[topic_id]}-{index}" for topic_id, index in answer.assigned)
        return [f"epoch {answer.member_epoch}, has {' '.join(partitions) or 'nothing'}"]

    def do_commit(self, name: str, offset: str) -> list[str]:
        self.commit("g", None if name == "-" else name, int(offset))
        return ["ok"]

    def do_stage(self, producer: str, offset: str) -> list[str]:
        commits = [OffsetCommit("t", 0, int(offset))]
        self.perform("g", lambda now: GroupStep(self.shard.offsets.stage("g", int(producer), commits, now)))
        return ["ok"]

    def do_end(self, producer: str, outcome: str) -> list[str]:
        commit = outcome == "commit"
        self.perform("g", lambda _now: GroupStep(self.shard.offsets.end_transaction(int(producer), commit=commit)))
        return ["ok"]

    def do_fetch(self, *words: str) -> list[str]:
        (found,) = self.shard.fetch("g", [TopicPartition("t", 0)], stable="stable" in words)
        return [type(found.error).__name__ if found.error else str(found.offset)]

    def do_show(self) -> list[str]:
        group = self.shard.groups.get("g")
        if group is not None and group.kind == "consumer":
            consumers = describe_consumers(self.shard, "g")
            members = " ".join(f"{self._name(each.member_id)}@{each.epoch}" for each in consumers.members)
            return [f"{consumers.state}, epoch {consumers.epoch}, {consumers.assignor}: {members or 'none'}"]
        classic = describe(self.shard, "g")
        members = " ".join(self._name(each.member_id) for each in classic.members)
        return [f"{classic.state}: {members or 'none'}"]

    def do_delete(self) -> list[str]:
        self.perform("g", lambda _now: self.shard.delete("g"))
        return ["ok"]

    def do_wait(self, milliseconds: str) -> list[str]:
        self.wait(int(milliseconds))
        return []

    def do_crash(self) -> list[str]:
        self.crash()
        return []

    def do_journal(self, what: str) -> list[str]:
        self.refuses = what == "refuses"
        return []


def _assignment(blob: bytes) -> str:
    """Scenarios write assignments as plain words; the broker's own are consumers' assignments."""
    if not blob.startswith(b"\0\0"):
        return blob.decode() or "nothing"
    return " ".join(f"{topic}-{index}" for topic, indexes in read_assignment(blob).items() for index in indexes)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(scenario: Path) -> None:
    play, played = Play(), []
    lines = scenario.read_text().splitlines()
    for line in lines:
        if line.startswith(">"):
            played += [line, *play.run(line[1:])]
        elif not line or line.startswith("#"):
            played.append(line)
    assert "\n".join(played) == "\n".join(lines)


def test_there_are_scenarios() -> None:
    assert len(SCENARIOS) >= 8
