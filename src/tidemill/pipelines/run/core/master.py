"""Spark masters: which kinds exist, what each needs before a session starts, and their addresses."""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from tidemill.pipelines.errors import WrongOption

_LOCAL = re.compile(r"local(\[(\d+|\*)(,\d+)?\])?|local-cluster\[\d+,\d+,\d+\]")
_STANDALONE = re.compile(r"spark://([^,/:]+:\d+)(,[^,/:]+:\d+)*")
STANDALONE, KUBERNETES, YARN, CONNECT = "spark://", "k8s://", "yarn", "sc://"
CONNECT_PORT = 15002
HADOOP = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
HTTPS_PORT, HTTP_PORT = 443, 80
ADVICE = "write local[4], spark://host:7077, yarn or k8s://https://host:6443"


def check_master(master: str, environment: Mapping[str, str]) -> None:
    """Raise WrongOption when Spark cannot start with this master."""
    if master == YARN:
        if not any(environment.get(name) for name in HADOOP):
            files = "core-site.xml and yarn-site.xml"
            raise WrongOption(f"--master yarn needs {HADOOP[0]}: set it to the folder with the cluster's {files}")
        return
    if not (_LOCAL.fullmatch(master) or _STANDALONE.fullmatch(master) or _places_of_kubernetes(master)):
        raise WrongOption(f"--master is {master}; {ADVICE}")


def places_of(url: str) -> list[tuple[str, int]]:
    """The addresses of a master, one of which must accept connections. Empty for masters without an address."""
    if url.startswith(STANDALONE):
        pairs = (each.rsplit(":", 1) for each in url.removeprefix(STANDALONE).split(","))
        return [(host, int(port)) for host, port in pairs]
    if url.startswith(CONNECT):
        return _place(url, CONNECT_PORT)
    return _places_of_kubernetes(url)


def _places_of_kubernetes(master: str) -> list[tuple[str, int]]:
    if not master.startswith(KUBERNETES):
        return []
    address = master.removeprefix(KUBERNETES)
    url = address if "://" in address else f"https://{address}"
    return _place(url, HTTP_PORT if url.startswith("http://") else HTTPS_PORT)


def _place(url: str, usual_port: int) -> list[tuple[str, int]]:
    parts = urlsplit(url)
    try:
        return [(parts.hostname, parts.port or usual_port)] if parts.hostname else []
    except ValueError:
        return []
