"""Targets of coverage-guided fuzzing: each reads bytes of an attacker and may raise the errors of its contract only.

A target is a module-level function `fuzz_NAME(data)`. Its starting points are the files of `corpus/NAME`.
"""

import base64
import json
import struct
from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from tests.unit.sql.core import trees

from tidemill.model import broker_settings
from tidemill.model.errors import (
    CorruptMessage,
    InvalidConfig,
    InvalidRecord,
    ProtocolViolation,
    SaslAuthenticationFailed,
    UnsupportedCompressionType,
)
from tidemill.model.listeners import inter_broker_listener, parse_listeners
from tidemill.records.header import HEADER_SIZE, iter_headers, seal
from tidemill.records.read import read_records, scan_records
from tidemill.records.validate import check_produced, is_plain
from tidemill.security.core.authorization_header import BearerLogin, parse_authorization
from tidemill.security.core.distinguished_name import distinguished_name
from tidemill.security.core.oauth import (
    ALGORITHMS,
    TokenRejected,
    TokenRules,
    authorization_id,
    check_claims,
    parse_bearer,
    parse_head,
)
from tidemill.security.core.peer_token import (
    PeerCall,
    PeerClaims,
    PeerStamp,
    PeerTokenRejected,
    open_peer_token,
    write_peer_token,
)
from tidemill.security.core.plain import parse_plain
from tidemill.security.core.principal import user
from tidemill.security.core.principal_rules import apply_rules, parse_rules
from tidemill.security.core.scram import ScramMechanism, ScramServer, credential_from_salted
from tidemill.servers.http.core.cookies import cookie_value
from tidemill.servers.http.core.form_tokens import is_form_token, parse_attempt
from tidemill.servers.http.request_origin import AllowedOrigins
from tidemill.servers.kafka.api_table import standard_table
from tidemill.sql.core.errors import SqlRefused
from tidemill.sql.core.syntax_tree import walk
from tidemill.wire.grpc import broker_pb2, timeline_pb2
from tidemill.wire.kafka.frames import FrameReader
from tidemill.wire.kafka.requests import is_flexible, peek, read_body, read_header

LIMIT_BYTES = 1 << 20
BATCH_ERRORS = (CorruptMessage, InvalidRecord, UnsupportedCompressionType)
_APIS = {api.key: api for api in standard_table().listed()}
_SCRATCH = memoryview(bytearray(64 * 1024))
_ORIGINS = AllowedOrigins("127.0.0.1", "127.0.0.1", ["console.example", ".svc.local"], ["host7"])
_MESSAGES = [
    GetMessageClass(method.input_type)
    for service in (
        broker_pb2.DESCRIPTOR.services_by_name["BrokerService"],
        timeline_pb2.DESCRIPTOR.services_by_name["TimelineService"],
    )
    for method in service.methods
]
_CREDENTIAL = credential_from_salted(ScramMechanism.SHA_256, bytes(32), b"salt of 16 bytes", 4096)
_PEER_TOKEN = write_peer_token(
    b"secret",
    PeerCall("/service/Method", 2, b"body"),
    PeerClaims(1, user("ada"), "10.0.0.7"),
    PeerStamp(b"s" * 16, 7, 1_700_000_000_000),
)
_SUBJECT_RULES = parse_rules(r"RULE:^CN=([^,]*),OU=brokers,.*$/broker-$1/L,RULE:^CN=([a-z]+)$/$1/,DEFAULT")
_FORBIDDEN = {"file", "readIt", "mine", "aiGenerate", "FILE('/etc/passwd')"}
_CALLED = (
    "sum",
    "plus",
    "equals",
    "in",
    "and",
    "tuple",
    "lambda",
    "sumIf",
    "add",
    *sorted(_FORBIDDEN),
    "fileOrNull",
    "File",
)
_NAMES = ("topic", "value", "a", "x", "file", "messages", "messages.value", "system.users", "sum", "")
_TABLES = ("messages", "partitions", "system.users", "messages.value", "file", "")
_NODES = ("ExpressionList", "Subquery", "Asterisk", "WithElement", "TableExpression", "Set", "Unknown")
NODES_MAX = 200


def fuzz_frames(data: bytes) -> None:
    """Bytes of a connection in pieces: the frames are the same as in one piece."""
    step = 1 + (data[0] if data else 0)
    frames = FrameReader(_SCRATCH, LIMIT_BYTES)
    position = 1
    try:
        while position < len(data):
            space = frames.space()
            piece = data[position : position + min(step, len(space))]
            space[: len(piece)] = piece
            frames.received(len(piece))
            position += len(piece)
    except ProtocolViolation:
        return


def fuzz_requests(data: bytes) -> None:
    """A frame as a request of the API that its first bytes name."""
    try:
        key, version = peek(data)
        api = _APIS.get(key)
        if api is None or not api.serves(version):
            return
        header = read_header(data, flexible=is_flexible(key, version))
        if api.read is not None:
            api.read(bytearray(data), header.body, version)
        else:
            read_body(header, data)
    except ProtocolViolation:
        return


def fuzz_batches(data: bytes) -> None:
    """A produced batch; with a right length and checksum the lie goes deeper."""
    batch = bytearray(data)
    if len(batch) >= HEADER_SIZE and batch[0] & 1:
        batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
        batch[16] = 2
        seal(batch, 0, len(batch))
    try:
        for _ in iter_headers(batch, partial_ok=True):
            pass
        check_produced(batch, version=9)
        list(read_records(batch, limit_bytes=LIMIT_BYTES))
    except BATCH_ERRORS:
        return


def fuzz_records(data: bytes) -> None:
    """Records without their batch: what the quick check takes for plain can be read."""
    if len(data) < 2:
        return
    count, payload = data[0], data[1:]
    plain = is_plain(payload, count)
    head = struct.pack(">qiibIhiqqqhii", 0, len(payload) + 49, 0, 2, 0, 0, max(count - 1, 0), 0, 0, -1, -1, -1, count)
    batch = bytearray(head + payload)
    seal(batch, 0, len(batch))
    try:
        [(_, header)] = list(iter_headers(batch))
        found = len(list(scan_records(payload, header)))
    except BATCH_ERRORS:
        assert not plain, "the quick check accepts records that cannot be read"
        return
    assert found == count or not plain


def fuzz_grpc(data: bytes) -> None:
    """A message of every gRPC method."""
    if not data:
        return
    try:
        _MESSAGES[data[0] % len(_MESSAGES)].FromString(data[1:])
    except DecodeError:
        return


def fuzz_http(data: bytes) -> None:
    """The path and the headers of a request."""
    method, _, rest = data.partition(b"\n")
    path, _, lines = rest.partition(b"\n")
    headers = [tuple(line.lower().partition(b":")[::2]) for line in lines.split(b"\n")]
    refusal = _ORIGINS.refuse(method.decode("latin-1"), path.decode("latin-1"), headers)  # type: ignore[arg-type]
    assert refusal is None or refusal.status in {400, 403}


def fuzz_sql(data: bytes) -> None:
    """A tree as the engine's parser makes it: accepted or refused with the error of SQL."""
    tree = trees.select(*_expressions(data))
    try:
        trees.asked(tree)
    except (SqlRefused, KeyError):
        return  # the parser makes no node without the names that its type has
    called = {each.node.get("name") for each in walk(tree) if each.node.get("type") == "Function"}
    assert not called & _FORBIDDEN, "a query that calls a forbidden function is accepted"


def _expressions(data: bytes) -> list[dict[str, Any]]:
    """Expressions from instructions of one byte: the kind in three bits, a name or a count in the others."""
    made: list[dict[str, Any]] = []
    for byte in data[:NODES_MAX]:
        kind, chosen = byte & 7, byte >> 3
        last = made[-(chosen & 3) :] if chosen & 3 else []
        if kind == 0:
            made.append(trees.identifier(*_NAMES[chosen % len(_NAMES)].split(".")))
        elif kind == 1:
            made.append(trees.literal((chosen, "text", [1, 2])[chosen % 3]))
        elif kind == 2 and made:
            made[-1] = {**made[-1], "alias": _NAMES[chosen % len(_NAMES)]}
        elif kind == 3 and made:
            made[-1] = trees.select(made[-1], source=trees.table(*_TABLES[chosen % len(_TABLES)].split(".")))
        elif kind == 4 and made:
            made[-1] = {"type": _NODES[chosen % len(_NODES)], "name": _NAMES[chosen % 4], "children": [made[-1]]}
        elif kind >= 5:
            del made[len(made) - len(last) :]
            made.append(trees.function(_CALLED[(chosen >> 2) * 3 % len(_CALLED) - (kind - 5)], *last))
    return made


def fuzz_listeners(data: bytes) -> None:
    """Listeners and rules of an operator."""
    text = data.decode("utf-8", "replace")
    listeners, _, rules = text.partition("\n")
    try:
        security = broker_settings.parse({"listeners": listeners, "listener.security.protocol.map": rules}).security
        inter_broker_listener(security, parse_listeners(security, None, None))
    except InvalidConfig:
        pass
    try:
        apply_rules(parse_rules(rules), listeners)
    except (InvalidConfig, SaslAuthenticationFailed):
        return


def fuzz_logins(data: bytes) -> None:
    """The messages of a login: PLAIN, SCRAM and OAUTHBEARER. None of them logs a client in."""
    for attempt in (_plain_login, _scram_login, _bearer_login):
        try:
            attempt(data)
        except SaslAuthenticationFailed:
            continue


def fuzz_authorization(data: bytes) -> None:
    """The value of the header `authorization`: a login is read as it was written, and nothing else is a login."""
    value = data.decode("utf-8", "surrogateescape")
    try:
        login = parse_authorization(value)
    except SaslAuthenticationFailed:
        return
    rest = value.strip().partition(" ")[2].strip()
    if isinstance(login, BearerLogin):
        assert login.token == rest
    else:
        assert base64.b64decode(rest) == f"{login.name}:{login.password}".encode()
    assert repr(login) in {"BearerLogin()", f"PlainLogin(name={getattr(login, 'name', '')!r})"}


def fuzz_peer_tokens(data: bytes) -> None:
    """Tokens of brokers: bytes that are changed or made without the secret are refused."""
    token = data.decode("utf-8", "surrogateescape")
    for made in (token, _PEER_TOKEN.replace(_PEER_TOKEN[10:20], token[:40], 1)):
        try:
            open_peer_token(b"secret", "/service/Method", 2, made, 1_700_000_000_000)
        except PeerTokenRejected:
            continue
        assert made == _PEER_TOKEN


def _plain_login(message: bytes) -> None:
    login = parse_plain(message)
    assert message in {f"{who}\0{login.name}\0{login.password}".encode() for who in ("", login.name)}


def _scram_login(message: bytes) -> None:
    first, _, final = message.partition(b"\n")
    server = ScramServer(ScramMechanism.SHA_256, "nonce")
    assert server.first(first)
    challenge = server.challenge(_CREDENTIAL, is_known=True)
    server.finish(final.replace(b"NONCE", challenge.partition(b",")[0].removeprefix(b"r=")))
    raise AssertionError("a proof was accepted that was made without the password")


def _bearer_login(message: bytes) -> None:
    token = parse_bearer(message)
    assert token.isascii()
    assert token.isprintable()
    assert authorization_id(message) is not None


def fuzz_tokens(data: bytes) -> None:
    """A token, or the document that is its head; then claims behind a line feed."""
    token, _, claims = data.partition(b"\n")
    if token.startswith(b"{"):
        token = base64.urlsafe_b64encode(token).rstrip(b"=") + b".e30.AAAA"
    try:
        head = parse_head(token.decode("latin-1"))
    except TokenRejected:
        pass
    else:
        assert head.algorithm in ALGORITHMS
    try:
        read = json.loads(claims)
    except (ValueError, RecursionError):
        return
    if isinstance(read, dict):
        try:
            found = check_claims(read, TokenRules("issuer", ("tidemill",)), 1_800_000_000_000)
        except TokenRejected:
            return
        assert found.principal.name.strip()
        assert found.expires_ms > 1_800_000_000_000 - 30_000


def fuzz_cookies(data: bytes) -> None:
    """The cookies of a browser: a token of a form cannot be guessed from them."""
    held, _, token = data.partition(b"\n")
    value = cookie_value([(b"cookie", held)], "login")
    attempt = parse_attempt(value, 1_000.0)
    assert attempt is None or 0 <= attempt.begun_s <= 1_000
    assert not is_form_token(b"key", "login", str(attempt), token.decode("utf-8", "surrogateescape"))


def fuzz_subjects(data: bytes) -> None:
    """The subject of a certificate: a value cannot add a part to the name, and rules give a user or an error."""
    text = data.decode("utf-8", "replace")
    values = text.split("\n")
    name = distinguished_name(
        [[("commonName" if place else "organizationName", each)] for place, each in enumerate(values)]
    )
    plain = name.replace("\\\\", "").replace("\\,", "")
    assert plain.count(",") == len(values) - 1, "a value adds a part to the name"
    try:
        assert apply_rules(_SUBJECT_RULES, name)
    except SaslAuthenticationFailed:
        return


def targets() -> dict[str, Callable[[bytes], None]]:
    """Every target by name."""
    return {name.removeprefix("fuzz_"): each for name, each in globals().items() if name.startswith("fuzz_")}
