"""`tidemill user`: adds, lists and removes the users that log in, and changes their passwords.

Through a broker by Kafka's own requests, so that it works for any Kafka broker. With --data-dir or --coordination in
the place where a stopped broker or a cluster keeps them: the first user, and super users. Kafka's protocol has no
request for super users. A broker that had one would let each administrator escape every DENY.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from tidemill.cli.connection import Bootstrap, Client, broker_at, failing, reach
from tidemill.cli.errors import CommandFailed, WrongUse
from tidemill.cli.options import Json, Yes, local_folder
from tidemill.cli.output import confirm, hint, remark, say, show, show_document, show_json
from tidemill.cli.passwords import Generate, Password, PasswordFile, choose_password

if TYPE_CHECKING:
    from tidemill.app.stored_users import StoredUsers
    from tidemill.pipelines.spec.core.broker import KafkaBroker
    from tidemill.security.core.scram import ScramMechanism
    from tidemill.wire.http.security import UserPage

app = typer.Typer(help="Add, list and remove users; change passwords.", no_args_is_help=True)

ITERATIONS_MIN, ITERATIONS_MAX, DEFAULT_ITERATIONS = 4096, 16384, 8192
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
SUPER_BY_BROKER = (
    "a broker cannot make a super user, because Kafka has no request for it; use --data-dir of a stopped broker, "
    "--coordination etcd://..., or the setting super.users of the brokers"
)

Name = Annotated[str, typer.Argument(metavar="USER", help="Name of the user.")]
Mechanism = Annotated[
    list[str] | None,
    typer.Option("--mechanism", help=f"Mechanism of the login: {' or '.join(MECHANISMS)}. Repeatable. Default: both."),
]
Iterations = Annotated[
    int, typer.Option(help="Rounds that stretch the password.", min=ITERATIONS_MIN, max=ITERATIONS_MAX)
]
DataDir = Annotated[
    str | None, typer.Option("--data-dir", help="Data directory of a stopped broker, instead of --bootstrap.")
]
Coordination = Annotated[
    str | None,
    typer.Option("--coordination", metavar="URL|FILE", help="etcd of a cluster, or a file with its URL."),
]


class ListedUser(NamedTuple):
    """A user, the iterations by mechanism, and whether it is a super user (None: the broker does not say)."""

    name: str
    iterations: dict[str, int]
    is_super: bool | None

    def row(self) -> dict[str, Any]:
        """The user for a table."""
        counts = sorted(set(self.iterations.values()))
        return {
            "user": self.name,
            "mechanisms": ", ".join(sorted(self.iterations)),
            "iterations": ", ".join(map(str, counts)),
            "super": self.is_super,
        }


@app.command()
def add(
    name: Name,
    super_: Annotated[
        bool, typer.Option("--super", help="The user may do everything. Needs --data-dir or --coordination.")
    ] = False,
    password: Password = None,
    password_file: PasswordFile = None,
    generate: Generate = False,
    mechanism: Mechanism = None,
    iterations: Iterations = DEFAULT_ITERATIONS,
    data_dir: DataDir = None,
    coordination: Coordination = None,
    bootstrap: Bootstrap = None,
    access: Client = None,
    as_json: Json = False,
) -> None:
    """Add a user who logs in with a password. Asks for the password unless an option gives it.

    A new user may do nothing until `tidemill acl grant` allows it. The first user is added before the first start of
    the broker, with --super and --data-dir.

    Example: tidemill user add admin --super --data-dir data

    Example: tidemill user add alice --password-file alice.password
    """
    if name.startswith("User:"):
        raise WrongUse(f"give the name of the user without User:, as in: tidemill user add {name[5:] or 'alice'}")
    mechanisms = _mechanisms(mechanism)
    stored = _stored(data_dir, coordination, bootstrap, access)
    if super_ and stored is None:
        raise WrongUse(SUPER_BY_BROKER)
    users = stored or _BrokerUsers(bootstrap, access)
    if any(each.name == name for each in _listed(users, exists=False)):
        raise CommandFailed(f"user {name} exists; change the password with: tidemill user set-password {name}")
    chosen = choose_password(name, password, password_file, generate=generate)
    if isinstance(users, _BrokerUsers):
        users.put(name, chosen.text, mechanisms, iterations)
    elif not users.create(name, _record(chosen.text, mechanisms, iterations, is_super=super_)):
        raise CommandFailed(f"user {name} was added meanwhile; change the password with: tidemill user set-password")
    if as_json:
        shown = {"password": chosen.text} if chosen.is_generated else {}
        show_json({"user": name, "mechanisms": mechanisms, "iterations": iterations, "super": super_, **shown})
        return
    say(f"added {'super ' if super_ else ''}user {name}")
    if chosen.is_generated:
        say(f"password: {chosen.text}")
    if coordination is not None and stored is not None and not stored.has_cluster():
        remark("no broker has started with this address of etcd yet; give brokers exactly the same --coordination")
    if stored is None:
        hint(f"next: tidemill acl grant {name} --consumer --topic TOPIC --group GROUP")
        _name_remaining_acls(users, name)


@app.command("list")
def list_(
    data_dir: DataDir = None,
    coordination: Coordination = None,
    bootstrap: Bootstrap = None,
    access: Client = None,
    as_json: Json = False,
) -> None:
    """List the users who log in with a password. A broker does not say which of them are super users.

    Example: tidemill user list
    """
    stored = _stored(data_dir, coordination, bootstrap, access)
    found = _listed(stored or _BrokerUsers(bootstrap, access))
    if as_json:
        show_document(_page(found))
        return
    columns = ("user", "mechanisms", "iterations", *(["super"] if stored else []))
    show([each.row() for each in found], columns, as_json=False, empty="there are no users yet")


@app.command("set-password")
def set_password(
    name: Name,
    password: Password = None,
    password_file: PasswordFile = None,
    generate: Generate = False,
    mechanism: Mechanism = None,
    iterations: Iterations = DEFAULT_ITERATIONS,
    data_dir: DataDir = None,
    coordination: Coordination = None,
    bootstrap: Bootstrap = None,
    access: Client = None,
    as_json: Json = False,
) -> None:
    """Change the password of a user. The old one is refused at once; connections that are open stay open.

    The user keeps its mechanisms, unless --mechanism names others. No mechanism keeps the old password.

    Example: tidemill user set-password alice
    """
    stored = _stored(data_dir, coordination, bootstrap, access)
    users = stored or _BrokerUsers(bootstrap, access)
    known = _named(users, name)
    mechanisms = _mechanisms(mechanism) if mechanism else (sorted(known.iterations) or list(MECHANISMS))
    chosen = choose_password(name, password, password_file, generate=generate)
    if isinstance(users, _BrokerUsers):
        users.put(name, chosen.text, mechanisms, iterations, dropped=sorted(set(known.iterations) - set(mechanisms)))
    else:
        users.set_password(name, _record(chosen.text, mechanisms, iterations))
    if as_json:
        shown = {"password": chosen.text} if chosen.is_generated else {}
        show_json({"user": name, "mechanisms": mechanisms, "iterations": iterations, **shown})
        return
    say(f"changed the password of {name}")
    if chosen.is_generated:
        say(f"password: {chosen.text}")


@app.command("set-super")
def set_super(
    name: Name,
    off: Annotated[bool, typer.Option("--off", help="Take the rights away again.")] = False,
    data_dir: DataDir = None,
    coordination: Coordination = None,
    as_json: Json = False,
) -> None:
    """Let a user do everything, or no longer. Needs --data-dir of a stopped broker, or --coordination.

    Example: tidemill user set-super alice --data-dir /var/lib/tidemill
    """
    stored = _stored(data_dir, coordination, None, None)
    if stored is None:
        raise WrongUse(SUPER_BY_BROKER)
    _named(stored, name)
    stored.set_super(name, is_super=not off)
    if as_json:
        show_json({"user": name, "super": not off})
    else:
        say(f"{name} is {'no longer' if off else 'now'} a super user")


@app.command()
def remove(
    names: Annotated[list[str], typer.Argument(metavar="USER...", help="Users to remove.")],
    yes: Yes = False,
    data_dir: DataDir = None,
    coordination: Coordination = None,
    bootstrap: Bootstrap = None,
    access: Client = None,
    as_json: Json = False,
) -> None:
    """Remove users. They cannot log in again; connections that are open stay open, and their ACLs stay.

    Example: tidemill user remove alice --yes
    """
    stored = _stored(data_dir, coordination, bootstrap, access)
    users = stored or _BrokerUsers(bootstrap, access)
    known = [_named(users, name) for name in dict.fromkeys(names)]
    confirm(f"remove {', '.join(each.name for each in known)}?", yes=yes)
    for each in known:
        if isinstance(users, _BrokerUsers):
            users.remove(each.name, sorted(each.iterations))
        else:
            users.remove(each.name)
        if not as_json:
            say(f"removed {each.name}")
            if isinstance(users, _BrokerUsers):
                _name_remaining_acls(users, each.name)
    if as_json:
        show_json({"removed": [each.name for each in known]})


class _BrokerUsers:
    """The users of a running cluster."""

    def __init__(self, bootstrap: str | None, access: list[str] | None) -> None:
        self._broker: KafkaBroker = broker_at(bootstrap, access)
        reach(self._broker)

    def all(self) -> list[ListedUser]:
        """Every user."""
        from tidemill.client.kafka import KafkaClient

        with failing("list users"), KafkaClient(self._broker.options) as client:
            return [ListedUser(each.name, _by_label(each.iterations), None) for each in client.users()]

    def put(
        self, name: str, password: str, mechanisms: Sequence[str], iterations: int, dropped: Sequence[str] = ()
    ) -> None:
        """Store credentials made from a password, which is not sent."""
        from secrets import token_bytes

        from tidemill.broker.credential_changes import password_changes

        changes = password_changes(name, password, mechanisms, iterations, token_bytes, dropped=dropped)
        self._alter(name, changes, "change")

    def remove(self, name: str, mechanisms: Sequence[str]) -> None:
        """Remove every credential of a user."""
        from tidemill.broker.credential_changes import removals

        self._alter(name, removals(name, mechanisms), "remove")

    def acl_count(self, name: str) -> int:
        """The number of ACLs that name a user; 0 where the broker has none to tell."""
        from tidemill.client.kafka import KafkaClient
        from tidemill.client.kafka.acls import AclFilterFields
        from tidemill.model.errors import TidemillError

        try:
            with KafkaClient(self._broker.options) as client:
                return len(client.acls(AclFilterFields(principal=f"User:{name}")))
        except TidemillError:
            return 0

    def _alter(self, name: str, changes: Sequence[Any], what: str) -> None:
        from tidemill.client.kafka import KafkaClient

        with failing(f"{what} user {name}"), KafkaClient(self._broker.options) as client:
            error = client.alter_users(changes).get(name)
            if error is not None:
                raise error


def _by_label(iterations: dict[int, int]) -> dict[str, int]:
    from tidemill.security.core.scram import BY_NUMBER

    return {BY_NUMBER[number].label: count for number, count in iterations.items() if number in BY_NUMBER}


def _listed(users: "_BrokerUsers | StoredUsers", *, exists: bool = True) -> list[ListedUser]:
    if isinstance(users, _BrokerUsers):
        return users.all()
    if not exists and users.is_new():
        return []
    return [
        ListedUser(name, {each.label: made.iterations for each, made in user.credentials.items()}, user.is_super)
        for name, user in sorted(users.all().items())
    ]


def _page(found: Sequence[ListedUser]) -> "UserPage":
    """The users as the JSON API lists them."""
    from tidemill.wire.http.security import UserPage, UserRow

    rows = [UserRow(user=each.name, mechanisms=each.iterations, super=each.is_super, acls=None) for each in found]
    return UserPage(users=rows, total=len(rows))


def _named(users: "_BrokerUsers | StoredUsers", name: str) -> ListedUser:
    found = next((each for each in _listed(users) if each.name == name), None)
    if found is None:
        raise CommandFailed(f"there is no user {name}; add it with: tidemill user add {name}")
    return found


def _name_remaining_acls(users: Any, name: str) -> None:
    count = users.acl_count(name)
    if count:
        remark(f"{count} ACLs name User:{name}; see: tidemill acl list {name}")


def _mechanisms(given: list[str] | None) -> list[str]:
    found = sorted({each.upper() for each in given or MECHANISMS})
    for each in found:
        if each not in MECHANISMS:
            raise WrongUse(f"--mechanism {each[:60]} is not one of {', '.join(MECHANISMS)}")
    return found


def _record(password: str, mechanisms: Sequence[str], iterations: int, *, is_super: bool = False) -> Any:
    from secrets import token_bytes

    from tidemill.security.core.scram import BY_LABEL
    from tidemill.security.users import user_with_password

    chosen: list[ScramMechanism] = [BY_LABEL[label] for label in mechanisms]
    return user_with_password(password, token_bytes, is_super=is_super, iterations=iterations, mechanisms=chosen)


def _stored(
    data_dir: str | None, coordination: str | None, bootstrap: str | None, access: list[str] | None
) -> "StoredUsers | None":
    """The place of --data-dir or --coordination; None: the users are changed through a broker."""
    if data_dir is None and coordination is None:
        return None
    if data_dir is not None and coordination is not None:
        raise WrongUse("give only one of --data-dir and --coordination")
    if access:
        raise WrongUse("--client is for a running broker; leave it out with --data-dir and --coordination")
    del bootstrap  # may come from TIDEMILL_BOOTSTRAP
    from tidemill.app.stored_users import StoredUsers

    if data_dir is not None:
        return StoredUsers(local_folder(data_dir))
    return StoredUsers(local_folder("."), _coordination(coordination or ""))


def _coordination(text: str) -> str:
    """The URL of etcd. One with a password belongs in a file."""
    from pathlib import Path

    from tidemill.model.errors import InvalidConfig
    from tidemill.settings import read_secret, shown

    url = text
    if "://" not in text:
        try:
            url = read_secret(Path(text).expanduser(), "--coordination")
        except InvalidConfig as error:
            raise WrongUse(f"{error}; give etcd://host:2379 or a file with such a URL") from None
    if not url.startswith(("etcd://", "etcds://")):
        raise WrongUse(f"--coordination {shown(url)[:80]} is not etcd://host:2379")
    if "@" in text:
        remark("warning: other users of this machine can see the password in --coordination; put the URL into a file")
    return url
