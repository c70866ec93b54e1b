"""A real etcd for tests: one member or three, on free ports, stopped after the tests."""

import shutil
import signal
import ssl
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.postgres import free_port
from tests.support.waiting import eventually

START_SECONDS = 60


class Certificates:
    """A certificate authority, and a certificate of this machine for servers and clients."""

    def __init__(self, home: Path, name: str = "ours") -> None:
        self.ca, self.cert, self.key = (home / f"{name}-{part}.pem" for part in ("ca", "cert", "key"))
        ca_key, request, names = (home / f"{name}-{part}" for part in ("ca.key", "request", "names"))
        names.write_text(
            "subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth,clientAuth\n"
            "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"  # required since Python 3.13
        )
        authority = ["-subj", f"/CN={name} ca", "-addext", "keyUsage=critical,keyCertSign,cRLSign"]
        new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        _openssl("req", "-x509", *new_key, "-keyout", ca_key, "-out", self.ca, "-days", "2", *authority)
        _openssl("req", *new_key, "-keyout", self.key, "-out", request, "-subj", f"/CN={name}")
        signing: list[str | Path] = [
            "-CA",
            self.ca,
            "-CAkey",
            ca_key,
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            names,
        ]
        _openssl("x509", "-req", "-in", request, *signing, "-out", self.cert)

    def context(self) -> ssl.SSLContext:
        """The TLS context for an etcd with these certificates."""
        context = ssl.create_default_context(cafile=self.ca)
        context.load_cert_chain(self.cert, self.key)
        return context


def _openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


class Member:
    """One etcd process, which can be killed and restarted."""

    def __init__(
        self, name: str, home: Path, host: str = "127.0.0.1", certificates: Certificates | None = None
    ) -> None:
        self.name = name
        self.host = host
        self._certificates = certificates
        self.client = free_port()
        self.peer = free_port()
        self._home = home
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, peers: str) -> None:
        """Start it. It is ready when its cluster is."""
        secure = self._certificates
        scheme = "http" if secure is None else "https"
        urls = {"client": f"{scheme}://{self.host}:{self.client}", "peer": f"http://{self.host}:{self.peer}"}
        program = shutil.which("etcd")
        assert program, "etcd is not installed: install the Debian package 'etcd-server'"
        log = (self._home / f"{self.name}.log").open("ab")
        options = {
            "name": self.name,
            "data-dir": str(self._home / self.name),
            "listen-client-urls": urls["client"],
            "advertise-client-urls": urls["client"],
            "listen-peer-urls": urls["peer"],
            "initial-advertise-peer-urls": urls["peer"],
            "initial-cluster": peers,
            "heartbeat-interval": "100",
            "election-timeout": "1000",
        }
        if secure is not None:
            options |= {
                "cert-file": str(secure.cert),
                "key-file": str(secure.key),
                "client-cert-auth": "true",
                "trusted-ca-file": str(secure.ca),
            }
        self._process = subprocess.Popen(
            [program, *(f"--{name}={value}" for name, value in options.items())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        log.close()

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Suspend it until `resume`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it continue."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def healthy(self) -> bool:
        """Whether it answers and has a leader."""
        secure = self._certificates
        context = None if secure is None else secure.context()
        url = f"{'http' if secure is None else 'https'}://{self.host}:{self.client}/health"
        with suppress(OSError), urllib.request.urlopen(url, timeout=1, context=context) as answer:
            return b'"true"' in answer.read()
        return False


class Etcd:
    """The members of one etcd."""

    def __init__(
        self, home: Path, members: int, hosts: Sequence[str] = (), certificates: Certificates | None = None
    ) -> None:
        at = hosts or ["127.0.0.1"] * members
        self.members = [Member(f"m{number}", home, at[number], certificates) for number in range(members)]
        self._folders = 0

    @property
    def url(self) -> str:
        """The value for --coordination."""
        return "etcd://" + ",".join(f"{member.host}:{member.client}" for member in self.members)

    def new_folder(self) -> str:
        """The URL of an unused folder."""
        self._folders += 1
        return f"{self.url}/test{self._folders}"

    def start(self, *members: Member) -> None:
        """Start members (default: all) and wait until they have a leader."""
        peers = ",".join(f"{member.name}=http://{member.host}:{member.peer}" for member in self.members)
        for member in members or self.members:
            member.start(peers)
        started = members or self.members
        eventually(lambda: all(member.healthy() for member in started), "etcd is not ready", within_s=START_SECONDS)

    def leader(self) -> Member:
        """The leading member."""
        for member in self.members:
            with suppress(OSError):
                metrics = urllib.request.urlopen(f"http://{member.host}:{member.client}/metrics", timeout=2).read()
                if b"\netcd_server_is_leader 1\n" in metrics:
                    return member
        raise AssertionError("no member leads")

    def stop(self) -> None:
        """Stop all members."""
        for member in self.members:
            member.kill()


@contextmanager
def running_etcd(
    members: int = 1, hosts: Sequence[str] = (), certificates: Certificates | None = None
) -> Iterator[Etcd]:
    """Run an etcd during the block."""
    home = Path(tempfile.mkdtemp(prefix="tidemill-etcd-"))
    etcd = Etcd(home, members, hosts, certificates)
    try:
        etcd.start()
        yield etcd
    finally:
        etcd.stop()
        shutil.rmtree(home, ignore_errors=True)
