"""Connections are counted by their local port and state, from the tables of the system."""

import socket
from pathlib import Path

from tests.support.waiting import eventually

from tidemill.servers.grpc.connection_count import established

TABLE = b"""  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:181E 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 0100007F:181E 0100007F:E0C2 01 00000000:00000000 02:00000000 00000000     0        0 2 2 0 20 4 30 10 -1
   2: 0100007F:E0C2 0100007F:181E 01 00000000:00000000 02:00000000 00000000     0        0 3 2 0 20 4 30 10 -1
   3: 0100007F:181E 0100007F:E0C4 06 00000000:00000000 03:00000000 00000000     0        0 0 3 0 20 4 30 10 -1
  10: 0100007F:181F 0100007F:E0C6 01 00000000:00000000 02:00000000 00000000     0        0 4 2 0 20 4 30 10 -1
"""
TABLE_6 = b"""  sl  local_address                         remote_address                        st
   0: 00000000000000000000000001000000:181E 00000000000000000000000001000000:E0C2 01 00000000:00000000
"""


def test_only_open_connections_to_the_port_count(tmp_path: Path) -> None:
    tables = tmp_path / "tcp", tmp_path / "tcp6"
    assert established(0x181E, tables) is None
    tables[0].write_bytes(TABLE)
    assert established(0x181E, tables) == 1
    tables[1].write_bytes(TABLE_6)
    assert established(0x181E, tables) == 2
    assert established(0x0181, tables) == 0


def test_connections_of_this_machine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        assert established(address[1]) == 0
        with socket.create_connection(address) as client:
            accepted, _ = server.accept()
            assert established(address[1]) == 1
            client.close()
            accepted.close()
        eventually(lambda: established(address[1]) == 0)
