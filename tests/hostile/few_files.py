"""A broker in a process that may open 256 files. It serves many clients, and additional clients do not block it.

The test lowers the hard limit, because a broker raises its soft limit to the hard one. A hard limit cannot be raised
again, so this is a process of its own.
"""

import resource
import time
from contextlib import ExitStack

from tests.hostile.attacked import WAIT_S, attacked_broker
from tests.hostile.frames import Peer

FILES = 256
SERVED = 40
ATTACKING = 100


def main() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    with ExitStack() as stack:
        broker = stack.enter_context(attacked_broker())
        peers = [stack.enter_context(Peer(broker.address)) for _ in range(SERVED)]
        for number, peer in enumerate(peers):
            assert not peer.ask(18, 0, {}).error_code, f"connection {number} was refused"
        for _ in range(ATTACKING):
            stack.enter_context(Peer(broker.address))
        for peer in peers:
            peer.close()
        deadline = time.monotonic() + WAIT_S
        while not served(broker.address):  # the broker may not have noticed yet that the others disconnected
            assert time.monotonic() < deadline, "a new client is not served"


def served(address: tuple[str, int]) -> bool:
    try:
        with Peer(address) as newcomer:
            return not newcomer.ask(18, 0, {}).error_code
    except ConnectionError:
        return False


if __name__ == "__main__":
    main()
