"""Timelines in a PostgreSQL that requires TLS, a client certificate and a password."""

import os
import pwd
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import asyncpg
import pytest
from tests.support.etcd import Certificates
from tests.support.postgres import Postgres, running_postgres

from tidemill.timelines.core.errors import StoreUnavailable
from tidemill.timelines.postgres import open_store
from tidemill.timelines.postgres.probe import visit

LOGIN = "secured:p%40ss%2Fword"
SECRETS = ("p%40ss", "p@ss/word", "guess")
HBA = """
host    all    tidemill  127.0.0.1/32  trust
hostssl tests  secured   127.0.0.1/32  scram-sha-256  clientcert=verify-ca
"""


class SecuredPostgres(NamedTuple):
    server: Postgres
    ours: Certificates
    others: Certificates

    def url(self, login: str = LOGIN, **options: object) -> str:
        chosen = {
            "sslmode": "verify-full",
            "sslrootcert": self.ours.ca,
            "sslcert": self.ours.cert,
            "sslkey": self.ours.key,
        } | options
        query = "&".join(f"{name}={value}" for name, value in chosen.items() if value)
        return f"postgresql://{login}@127.0.0.1:{self.server.port}/tests?{query}"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that the server can read, which runs as another user when the tests run as root."""
    made = Path(tempfile.mkdtemp(prefix="tidemill-pgtls-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="module")
def secured(folder: Path) -> Iterator[SecuredPostgres]:
    ours, others = Certificates(folder), Certificates(folder, "others")
    hba = folder / "pg_hba.conf"
    hba.write_text(HBA)
    key = folder / "server.key"
    shutil.copyfile(ours.key, key)
    key.chmod(0o600)
    if os.geteuid() == 0:
        owner = pwd.getpwnam("postgres").pw_uid
        for path in (folder, hba, key, ours.cert, ours.ca):
            os.chown(path, owner, -1)
    with running_postgres(
        ssl="on", ssl_cert_file=str(ours.cert), ssl_key_file=str(key), ssl_ca_file=str(ours.ca), hba_file=str(hba)
    ) as server:
        yield SecuredPostgres(server, ours, others)


@pytest.fixture
async def database(secured: SecuredPostgres) -> SecuredPostgres:
    connection = await asyncpg.connect(secured.server.new_database())
    await connection.execute("DROP ROLE IF EXISTS secured")
    await connection.execute("CREATE ROLE secured LOGIN PASSWORD 'p@ss/word'")
    await connection.execute("GRANT CREATE ON DATABASE tests TO secured")
    await connection.close()
    return secured


@pytest.fixture(autouse=True)
async def _no_role_left(secured: SecuredPostgres) -> AsyncIterator[None]:
    yield
    connection = await asyncpg.connect(f"postgresql://tidemill@127.0.0.1:{secured.server.port}/tests")
    await connection.execute("DROP OWNED BY secured CASCADE")
    await connection.execute("DROP ROLE secured")
    await connection.close()


async def test_the_store_is_opened_over_a_verified_connection(database: SecuredPostgres) -> None:
    store = await open_store(database.url())
    await store.close()
    assert (await visit(database.url())).schema > 0


@pytest.mark.parametrize(
    ("login", "options", "said"),
    [
        (LOGIN, {"sslrootcert": "others"}, "certificate verify failed"),
        (LOGIN, {"sslcert": "", "sslkey": ""}, "requires a valid client certificate"),
        (LOGIN, {"sslmode": "disable"}, "no encryption"),
        ("secured:guess", {}, "password authentication failed"),
    ],
    ids=["another CA", "no client certificate", "no TLS", "password"],
)
async def test_a_wrong_login_is_refused_without_its_secrets(
    database: SecuredPostgres, login: str, options: dict[str, object], said: str
) -> None:
    if options.get("sslrootcert"):
        options = {"sslrootcert": database.others.ca}
    for connect in (open_store, visit):
        with pytest.raises(StoreUnavailable, match=said) as refused:
            await connect(database.url(login, **options))
        assert not [secret for secret in SECRETS if secret in str(refused.value)]
