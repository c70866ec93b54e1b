"""`tidemill cert`: certificates for development. In production, use the certificates of your own authority."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from tidemill.cli.errors import WrongUse
from tidemill.cli.options import Json, local_folder
from tidemill.cli.output import remark, say, show_json
from tidemill.model.errors import InvalidConfig

app = typer.Typer()

DEFAULT_HOSTS = ("localhost", "127.0.0.1", "::1")
DEFAULT_DAYS, DAYS_MAX = 365, 36_500


@app.command()
def create(
    name: Annotated[str | None, typer.Argument(help="Name of a broker's certificate, and of its file.")] = None,
    client: Annotated[
        str | None, typer.Option("--client", metavar="USER", help="Make a client certificate of this user instead.")
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            help="Host name or IP address that clients connect to. Repeatable.",
            show_default=", ".join(DEFAULT_HOSTS),
        ),
    ] = None,
    dir: Annotated[str, typer.Option("--dir", help="Directory of the CA and of the certificates.")] = "certs",
    days: Annotated[int, typer.Option(help="Days until the certificate expires.", min=1, max=DAYS_MAX)] = DEFAULT_DAYS,
    force: Annotated[bool, typer.Option("--force", help="Replace a certificate that exists.")] = False,
    as_json: Json = False,
) -> None:
    """Create a certificate for a broker or a client, signed by a development CA.

    The first call makes the CA: ca.pem, which clients and brokers trust, and ca.key. The file NAME.pem has the
    certificate, its chain and its private key.

    Example: tidemill cert create broker --host localhost --host 127.0.0.1

    Example: tidemill cert create --client alice
    """
    from tidemill.app.certificates import create_certificate

    hosts = _hosts(name, client, host)
    try:
        made = create_certificate(
            local_folder(dir), name or client or "", hosts, days=days, now=datetime.now(UTC), overwrite=force
        )
    except InvalidConfig as error:
        raise WrongUse(str(error)) from None
    row = {
        "certificate": str(made.path),
        "ca": str(made.authority_path),
        "ca_created": made.authority_created,
        "name": name or client,
        "kind": "client" if client else "broker",
        "hosts": list(hosts),
        "expires": made.expires.isoformat().replace("+00:00", "Z"),
    }
    if as_json:
        show_json(row)
        return
    if made.authority_created:
        say(f"{made.authority_path}  the CA: clients and brokers trust it (ssl.truststore.location)")
    use = "ssl.certificate.location and ssl.key.location of a client" if client else "ssl.keystore.location of a broker"
    say(f"{made.path}  {row['kind']} {row['name']}, expires {made.expires:%Y-%m-%d} ({use})")
    remark("for development only: who reads ca.key can sign certificates for any user")


def _hosts(name: str | None, client: str | None, host: list[str] | None) -> tuple[str, ...]:
    if (name is None) == (client is None):
        raise WrongUse("give the name of a broker's certificate, or --client USER; see tidemill cert create --help")
    if client is not None:
        if host:
            raise WrongUse("--host is for the certificate of a broker; leave it out with --client")
        return ()
    return tuple(host or DEFAULT_HOSTS)
