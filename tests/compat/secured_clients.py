"""Real Kafka clients that log in. Each returns "ok", or the name that the client itself gives to the error.

The Java and the Go program run once and take their work as lines of standard input, because a JVM starts slowly.
"""

import asyncio
import gc
import logging
import re
import ssl
import subprocess
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from typing import Any, ClassVar, Protocol, TypeVar

from tests.compat.programs import JAVA, NEWEST_JAVA, go_program, java_class_path
from tests.compat.secured_world import Login

T = TypeVar("T")

WAIT_S = 30.0
BOOTSTRAP_MS = 1_500
"""How long kafka-python tries to find a broker: it does not give up when its login is refused."""
OK = "ok"
TOPIC, GROUP, LOGIN, UNTRUSTED, NO_CERTIFICATE, DISTRUSTED = (
    "topic", "group", "login", "untrusted", "no certificate", "distrusted",
)  # fmt: skip
"""What may be refused: a topic, a group, a password, a client's certificate, its absence, the broker's certificate."""


class SecuredClient(Protocol):
    """A client."""

    @property
    def name(self) -> str:
        """The name of the library."""

    @property
    def errors(self) -> Mapping[str, str]:
        """Its names of what may be refused."""

    def produce(self, login: Login, topic: str) -> str:
        """Write one record."""

    def consume(self, login: Login, topic: str, group: str) -> str:
        """Read one record as a member of a group."""


class Confluent:
    """confluent-kafka."""

    name = "confluent-kafka"
    errors: ClassVar[Mapping[str, str]] = {
        TOPIC: "TOPIC_AUTHORIZATION_FAILED",
        GROUP: "GROUP_AUTHORIZATION_FAILED",
        LOGIN: "_AUTHENTICATION",
        UNTRUSTED: "_TRANSPORT: alert unknown ca",
        NO_CERTIFICATE: "_TRANSPORT: alert certificate required",
        DISTRUSTED: "_SSL",
    }

    def produce(self, login: Login, topic: str) -> str:
        from confluent_kafka import Producer

        seen: list[str] = []
        delivered: list[str] = []
        producer = Producer({**login.librdkafka(), "log_level": 0, "error_cb": _noting(seen)})
        producer.produce(
            topic, b"tea", on_delivery=lambda error, _: delivered.append(OK if error is None else error.name())
        )
        _until(lambda: (producer.poll(0.05), delivered or seen)[1])
        producer.purge()
        producer.flush(WAIT_S)
        return (seen or delivered)[0]

    def consume(self, login: Login, topic: str, group: str) -> str:
        from confluent_kafka import Consumer

        seen: list[str] = []
        settings = {**login.librdkafka(), "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
        consumer = Consumer({**settings, "error_cb": _noting(seen)})
        consumer.subscribe([topic])

        def outcome() -> str:
            message = consumer.poll(0.05)
            if message is None:
                return seen[0] if seen else ""
            return OK if message.error() is None else str(message.error().name())

        try:
            return _until(outcome)
        finally:
            consumer.close()


_ALERT = re.compile(r"alert [a-z ]+(?=:)")


def _noting(seen: list[str]) -> Callable[[Any], None]:
    """Keep the errors that end a login; librdkafka tries again after a lost connection, but a TLS alert is final."""

    def note(error: Any) -> None:
        alert = _ALERT.search(error.str())
        if error.name() not in {"_ALL_BROKERS_DOWN", "_TRANSPORT"}:
            seen.append(error.name())
        elif alert is not None:
            seen.append(f"{error.name()}: {alert[0]}")

    return note


def _until(outcome: Callable[[], T]) -> T:
    deadline = time.monotonic() + WAIT_S
    while not (found := outcome()):
        assert time.monotonic() < deadline, "the client has no result"
    return found


class KafkaPython:
    """kafka-python."""

    name = "kafka-python"
    errors: ClassVar[Mapping[str, str]] = {
        TOPIC: "TopicAuthorizationFailedError",
        GROUP: "GroupAuthorizationFailedError",
        LOGIN: "SaslAuthenticationFailedError",
        UNTRUSTED: "TLSV1_ALERT_UNKNOWN_CA",
        NO_CERTIFICATE: "ALERT_CERTIFICATE_REQUIRED",
        DISTRUSTED: "CERTIFICATE_VERIFY_FAILED",
    }

    def produce(self, login: Login, topic: str) -> str:
        from kafka import KafkaProducer

        def send() -> None:
            producer = KafkaProducer(bootstrap_timeout_ms=BOOTSTRAP_MS, **_python_settings(login))
            try:
                producer.send(topic, b"tea").get(WAIT_S)
            finally:
                producer.close(WAIT_S)

        return _outcome("kafka", send)

    def consume(self, login: Login, topic: str, group: str) -> str:
        from kafka import KafkaConsumer

        def read() -> None:
            consumer = KafkaConsumer(
                topic,
                group_id=group,
                auto_offset_reset="earliest",
                bootstrap_timeout_ms=BOOTSTRAP_MS,
                **_python_settings(login),
            )
            try:
                assert consumer.poll(WAIT_S * 1000, max_records=1), "no record"
            finally:
                consumer.close()

        return _outcome("kafka", read)


def _outcome(library: str, work: Callable[[], None]) -> str:
    """The name of the error; while a client has no broker, the library only logs why."""
    with _logged(library) as lines:
        try:
            work()
        except Exception as error:  # noqa: BLE001 -- the name of any error is the result
            name = type(error).__name__
            found = name if "Unable to bootstrap" not in str(error) else f"{name}: {' '.join(lines)}"
        else:
            found = OK
    _collect_sockets()
    return found


def _collect_sockets() -> None:
    """Both libraries do not close the socket of a connection that was refused; the next test is not to blame for it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@contextmanager
def _logged(library: str) -> Iterator[list[str]]:
    """The errors that a library logs."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    handler = Keep(logging.ERROR)
    logger = logging.getLogger(library)
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)


def _python_settings(login: Login) -> dict[str, Any]:
    found: dict[str, Any] = {
        "bootstrap_servers": login.bootstrap,
        "security_protocol": login.protocol,
        "ssl_context": _context(login),
    }
    if login.mechanism:
        found |= {
            "sasl_mechanism": login.mechanism,
            "sasl_plain_username": login.user,
            "sasl_plain_password": login.password,
        }
    return found


def _context(login: Login) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=login.authority)
    if login.certificate:
        context.load_cert_chain(login.certificate)
    return context


class Aiokafka:
    """aiokafka."""

    name = "aiokafka"
    errors: ClassVar[Mapping[str, str]] = {
        TOPIC: "TopicAuthorizationFailedError",
        GROUP: "GroupAuthorizationFailedError",
        LOGIN: "SaslAuthenticationFailed",
        # aiokafka drops the reason of a connection that ends after the handshake, as with TLS 1.3.
        UNTRUSTED: "KafkaConnectionError",
        NO_CERTIFICATE: "KafkaConnectionError",
        DISTRUSTED: "CERTIFICATE_VERIFY_FAILED",
    }

    def produce(self, login: Login, topic: str) -> str:
        from aiokafka import AIOKafkaProducer

        async def send() -> None:
            producer = AIOKafkaProducer(**_python_settings(login))
            try:
                await producer.start()
                await producer.send_and_wait(topic, b"tea")
            finally:
                await producer.stop()

        return _outcome("aiokafka", lambda: asyncio.run(send()))

    def consume(self, login: Login, topic: str, group: str) -> str:
        from aiokafka import AIOKafkaConsumer

        async def read() -> None:
            consumer = AIOKafkaConsumer(topic, group_id=group, auto_offset_reset="earliest", **_python_settings(login))
            try:
                await consumer.start()
                await asyncio.wait_for(consumer.getone(), WAIT_S)
            finally:
                await consumer.stop()

        return _outcome("aiokafka", lambda: asyncio.run(read()))


class Kcat:
    """kcat, with Debian's librdkafka 2.0."""

    name = "kcat"
    errors: ClassVar[Mapping[str, str]] = {
        TOPIC: "Topic authorization failed",
        GROUP: "may not DESCRIBE GROUP",
        LOGIN: "SASL authentication error",
        UNTRUSTED: "alert unknown ca",
        NO_CERTIFICATE: "alert certificate required",
        DISTRUSTED: "certificate verify failed",
    }

    def produce(self, login: Login, topic: str) -> str:
        return self._run(login, "tea\n", "-P", "-t", topic)

    def consume(self, login: Login, topic: str, group: str) -> str:
        return self._run(login, "", "-X", "auto.offset.reset=earliest", "-c", "1", "-G", group, topic)

    def _run(self, login: Login, given: str, *words: str) -> str:
        settings = [word for name, value in login.librdkafka().items() for word in ("-X", f"{name}={value}")]
        with subprocess.Popen(
            ["kcat", *settings, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin is not None
            assert process.stderr is not None
            timer = threading.Timer(WAIT_S, process.kill)
            timer.start()
            try:
                process.stdin.write(given)
                process.stdin.close()
                said = ""
                for line in process.stderr:
                    said += line
                    found = next((text for text in self.errors.values() if text in line), None)
                    if found is not None:
                        process.kill()
                        return found
                return OK if process.wait() == 0 else said
            finally:
                timer.cancel()


class LineProgram:
    """A client in a program that reads one line of JSON for each operation and writes one line with its result."""

    def __init__(
        self, name: str, command: Sequence[str], words: Callable[[Login], dict[str, str]], errors: Mapping[str, str]
    ) -> None:
        self.name, self.errors = name, errors
        self._words = words
        self._lines: Queue[str] = Queue()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def produce(self, login: Login, topic: str) -> str:
        """Write one record."""
        return self.ask("produce", login, topic)

    def consume(self, login: Login, topic: str, group: str) -> str:
        """Read one record as a member of a group."""
        return self.ask("consume", login, topic, group)

    def ask(self, operation: str, login: Login, *arguments: str, wait_s: float = WAIT_S) -> str:
        """Run one operation; its result is the last word of the answer."""
        assert self._process.stdin is not None
        settings = [f"{name}={value}" for name, value in self._words(login).items()]
        self._process.stdin.write("\t".join([operation, *arguments, *settings]) + "\n")
        self._process.stdin.flush()
        try:
            return self._lines.get(timeout=wait_s)
        except Empty:
            raise AssertionError(f"{self.name} has no result of {operation} after {wait_s:g} s") from None

    def close(self) -> None:
        """End the program."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join(10)
            self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.strip())


JAVA_ERRORS = {
    TOPIC: "TopicAuthorizationException",
    GROUP: "GroupAuthorizationException",
    LOGIN: "SaslAuthenticationException",
    UNTRUSTED: "SslAuthenticationException",
    NO_CERTIFICATE: "SslAuthenticationException",
    DISTRUSTED: "SslAuthenticationException",
}
GO_ERRORS = {
    TOPIC: "TOPIC_AUTHORIZATION_FAILED",
    GROUP: "GROUP_AUTHORIZATION_FAILED",
    LOGIN: "SASL_AUTHENTICATION_FAILED",
    UNTRUSTED: "tls: unknown certificate authority",
    NO_CERTIFICATE: "tls: certificate required",
    DISTRUSTED: "x509",
}


def java(folder: Path) -> LineProgram:
    """The newest Java client; `folder` is for its classes."""
    class_path = java_class_path(NEWEST_JAVA, "Secured", folder)
    return LineProgram("java", [*JAVA, "-cp", class_path, "Secured"], Login.java, JAVA_ERRORS)


def franz_go(folder: Path) -> LineProgram:
    """franz-go. Building it takes half a minute."""
    del folder
    return LineProgram("franz-go", [str(go_program("go", "franz-go"))], Login.words, GO_ERRORS)
