"""Replication on a virtual clock: a campaign that must find nothing, and mutants that it must find.

More seeds: `python -m tests.simulation.replica_world SEEDS SECONDS FIRST_SEED`.
"""

from collections import Counter
from typing import NamedTuple

import pytest
from tests.simulation.replica_mutants import MUTANTS
from tests.simulation.replica_world import World, quiet

SEEDS = range(10)
SECONDS = 40.0
RARE = (
    "elections",
    "shrunk",
    "grown",
    "power cuts",
    "kills",
    "frozen",
    "stepped down",
    "one way",
    "sniped",
    "ambushed",
    "faults",
)


@pytest.fixture(autouse=True)
def _no_log_lines() -> None:
    quiet()


def test_b1_to_b9_no_history_loses_doubles_or_changes_acknowledged_records() -> None:
    happened: Counter[str] = Counter()
    for seed in SEEDS:
        world = World(seed, SECONDS, ambush=seed % 2 == 1).run()
        assert not world.violations, f"seed {seed}: {world.violations}"
        assert len(world.acked) > 20, f"seed {seed}: hardly anything was acknowledged"
        happened += world.sometimes
    assert all(happened[each] for each in RARE), f"a campaign in which this never happens proves little: {happened}"


def test_one_seed_is_one_history() -> None:
    one, other = World(3, 8.0).run(), World(3, 8.0).run()
    assert (one.acked, one.loop.steps, one.network.messages) == (other.acked, other.loop.steps, other.network.messages)


class Canary(NamedTuple):
    """A history in which the mutant is found soon."""

    seed: int
    ambush: bool = False


CANARIES = {
    "ack before flush": Canary(5),
    "unclean election": Canary(9),
    "cut to watermark": Canary(66),
    "minimal in-sync set": Canary(63),
    "shrink before it is agreed": Canary(17, ambush=True),
    "entry at a stale watermark": Canary(20),
    "lost proposal": Canary(121),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_fault_is_found(name: str) -> None:
    seed, ambush = CANARIES[name]
    plant, elect_by = MUTANTS[name]
    with plant():
        assert World(seed, SECONDS, elect_by, ambush=ambush).run().violations, f"seed {seed} does not find: {name}"
