"""An etcd that requires certificates, user and password: other clients get an error of one line."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.etcd import Certificates, Etcd, running_etcd

pytest.importorskip("aetcd")

from aetcd import rpc

from tidemill.cluster.etcd import EtcdCoordination, parse
from tidemill.cluster.etcd.channels import Channels
from tidemill.cluster.interface import CoordinationAway
from tidemill.model.errors import InvalidConfig

USER, PASSWORD = "tide", "s3cret:/@mill"
QUOTED = "s3cret%3A%2F%40mill"


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def guarded(ours: Certificates) -> Iterator[Etcd]:
    """An etcd with TLS for both sides, and authentication switched on."""
    with running_etcd(certificates=ours) as etcd:
        asyncio.run(_switch_on(address(etcd, ours)))
        yield etcd


def address(etcd: Etcd, files: Certificates, login: str = "", folder: str = "guarded") -> str:
    hosts = etcd.url.removeprefix("etcd://")
    return f"etcd://{login}{hosts}/{folder}?ca={files.ca}&cert={files.cert}&key={files.key}"


async def _switch_on(url: str) -> None:
    channels = Channels(parse(url))
    _, line = await channels.current()
    users = line.users
    for user, password in (("root", "of all"), (USER, PASSWORD)):
        await users.UserAdd(rpc.AuthUserAddRequest(name=user, password=password))
    await users.RoleAdd(rpc.AuthRoleAddRequest(name="root"))
    await users.RoleAdd(rpc.AuthRoleAddRequest(name="keys"))
    mine = rpc.Permission(permType=rpc.Permission.READWRITE, key=b"/guarded/", range_end=b"/guarded0")
    await users.RoleGrantPermission(rpc.AuthRoleGrantPermissionRequest(name="keys", perm=mine))
    await users.UserGrantRole(rpc.AuthUserGrantRoleRequest(user="root", role="root"))
    await users.UserGrantRole(rpc.AuthUserGrantRoleRequest(user=USER, role="keys"))
    await users.AuthEnable(rpc.AuthEnableRequest())
    await channels.close()


async def test_a_user_with_every_permission_reads_writes_watches_and_keeps_a_session(
    guarded: Etcd, ours: Certificates
) -> None:
    store = EtcdCoordination(address(guarded, ours, f"{USER}:{QUOTED}@"))
    seen = asyncio.Event()

    async def watch() -> None:
        async for change in store.watch("", 0):
            if change.key == "again":
                seen.set()

    watching = asyncio.create_task(watch())
    async with store.session(2_000) as session:
        first = await store.compare_and_put("held", b"1", 0, session=session)
        assert first is not None
        await asyncio.sleep(2.5)  # longer than it lives without being renewed
        assert session.alive
        assert await store.get("held") is not None
        for line in store._channels._open.values():
            line.login = (("token", "forgotten by etcd"),)
        assert await store.compare_and_put("again", b"2", 0) is not None, "it asks for another token"
    assert await store.get("held") is None
    async with asyncio.timeout(20):
        await seen.wait()
    watching.cancel()
    await store.close()


@pytest.mark.parametrize(
    ("login", "said"),
    [
        (f"{USER}:wrong@", "authentication failed"),
        ("", "permission denied"),
    ],
)
async def test_an_unknown_login_is_rejected(guarded: Etcd, ours: Certificates, login: str, said: str) -> None:
    store = EtcdCoordination(address(guarded, ours, login), answer_s=2)
    try:
        with pytest.raises(CoordinationAway) as refused:
            await store.get("held")
    finally:
        await store.close()
    reported = str(refused.value)
    assert said in reported
    assert "wrong" not in reported


def test_serve_says_what_is_wrong_in_one_line_and_never_the_password(
    guarded: Etcd, ours: Certificates, tmp_path: Path
) -> None:
    strangers = Certificates(tmp_path, "strangers")
    files = f"ca={strangers.ca}&cert={ours.cert}&key={ours.key}"
    hosts = guarded.url.removeprefix("etcd://")
    login = f"{USER}:{QUOTED}@"
    for url, said in (
        (f"etcd://{login}{hosts}/guarded?{files}", "TLS with"),
        (f"etcd://{login}{hosts}/guarded?ca=/nowhere.pem", "the ca file of the etcd URL, /nowhere.pem, cannot be read"),
        (address(guarded, ours, f"{USER}:not-it@"), "authentication failed"),
    ):
        flags = {
            "node-id": "1",
            "kafka": "127.0.0.1:0",
            "grpc": "none",
            "http": "none",
            "data-dir": str(tmp_path / "d"),
        }
        words = [word for name, value in flags.items() for word in (f"--{name}", value)]
        command = [sys.executable, "-m", "tidemill", "serve", *words, "--coordination", url]
        result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        assert result.returncode == 1, result
        reported = result.stderr.splitlines()[-1]
        assert reported.startswith("error: "), result
        assert said in reported
        for secret in (QUOTED, PASSWORD, "not-it"):
            assert secret not in result.stderr + result.stdout


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("etcd://me@h:1", "the login in the URL of etcd at h:1 is incomplete"),
        ("etcd://h:1?cert=/dev/null", "only one of cert and key"),
        ("etcd://h:1?color=blue", "unknown option 'color'"),
        ("http://u:secret@h:1", "'h:1' is not an etcd URL"),
        ("etcd://u:secret@h:p", "'h:p' is not host:port"),
    ],
)
def test_an_error_about_an_address_does_not_show_the_password(url: str, said: str) -> None:
    with pytest.raises(InvalidConfig) as wrong:
        parse(url)
    assert said in str(wrong.value)
    assert "secret" not in str(wrong.value)


def test_the_parts_of_an_address() -> None:
    found = parse(f"etcds://{USER}:{QUOTED}@a,b:77/shop")
    assert found.members == ("a:2379", "b:77")
    assert (found.prefix, found.user, found.password) == ("/shop/", USER, PASSWORD)
    assert found.tls is not None
    assert parse("etcd://a").tls is None
