"""The copy loop with the Java client, old (AddPartitionsToTxn) and new (an epoch for each transaction), over kills."""

import random
import subprocess
import threading
from pathlib import Path

import pytest
from tests.compat.programs import java_class_path
from tests.compat.test_java import VERSIONS
from tests.compat.test_transactions import COUNT, KILLS, WAIT_S, Killer, create, fill, read_all

from tidemill.testing import Broker

LIMIT_S = 150


@pytest.mark.parametrize("version", VERSIONS)
def test_a_copy_loop_is_exactly_once_over_aborts_and_kills(version: str, tmp_path: Path) -> None:
    class_path = java_class_path(version, "Copy", tmp_path)
    seed = random.randrange(2**31)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with Broker(process=True) as broker:
        bootstrap = broker.bootstrap_servers
        create(bootstrap, "in", "out")
        sent = fill(bootstrap, "in", COUNT)
        killer = Killer(broker, sorted(chance.sample(range(1, COUNT * 3 // 4), KILLS)))
        copy_with_java(class_path, bootstrap, seed, killer)
        killer.join()
        wanted = {partition: [b"copy of " + value for value in values] for partition, values in sent.items()}
        assert read_all(bootstrap, "out") == wanted


def copy_with_java(classpath: str, bootstrap: str, seed: int, killer: Killer) -> None:
    memory = ["-Xmx256m", "-XX:TieredStopAtLevel=1"]
    command = ["java", *memory, "-cp", classpath, "Copy", bootstrap, str(COUNT), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as copying:
        limit = threading.Timer(LIMIT_S, copying.kill)
        limit.start()
        try:
            assert copying.stdout is not None
            for line in copying.stdout:
                if line.startswith("progress"):
                    killer.progress(int(line.split()[1]))
            assert copying.wait(WAIT_S) == 0
        finally:
            limit.cancel()
            copying.kill()
