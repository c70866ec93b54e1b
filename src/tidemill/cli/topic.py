"""`tidemill topic`: creates, lists, describes, alters and deletes topics of any Kafka broker."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.connection import (
    COPIES_MAX,
    PARTITIONS_MAX,
    TIMEOUT_S,
    Bootstrap,
    Client,
    admin,
    answer,
    broker_at,
    describe_topic,
    kafka_errors,
    pairs,
)
from tidemill.cli.errors import CommandFailed, WrongUse
from tidemill.cli.options import Json, Yes
from tidemill.cli.output import confirm, progress, say, show, show_document, show_json

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from tidemill.pipelines.spec.core.broker import KafkaBroker
    from tidemill.wire.http.topics import TopicDescription, TopicPage

app = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
Configs = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="NAME=VALUE", help="A topic setting in Kafka's spelling. Repeatable."),
]


@app.command()
def create(
    name: Name,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="Number of partitions.", min=1, max=PARTITIONS_MAX)
    ] = 1,
    replication_factor: Annotated[
        int, typer.Option(help="Replicas of each partition. -1: the broker's default.", min=-1, max=COPIES_MAX)
    ] = -1,
    config: Configs = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Succeed if the topic exists.")] = False,
    bootstrap: Bootstrap = None,
    access: Client = None,
    as_json: Json = False,
) -> None:
    """Create a topic.

    Example: tidemill topic create orders --partitions 3 --config retention.ms=86400000
    """
    from confluent_kafka.admin import NewTopic

    overrides = pairs(config or [], "--config")
    client = admin(broker_at(bootstrap, access))
    found = _topics(client).get(name) if if_not_exists else None
    if found is None:
        topic = NewTopic(name, num_partitions=partitions, replication_factor=replication_factor, config=dict(overrides))
        answer(client.create_topics([topic])[name], f"create {name}")
    count = partitions if found is None else len(found.partitions)
    if as_json:
        show_json({"topic": name, "partitions": count, "created": found is None})
    else:
        done = f"created {name}" if found is None else f"{name} already exists,"
        say(f"{done} with {count} partition{'s' if count != 1 else ''}")


@app.command("list")
def list_(
    internal: Annotated[bool, typer.Option("--internal", help="Also show internal topics.")] = False,
    bootstrap: Bootstrap = None,
    access: Client = None,
    as_json: Json = False,
) -> None:
    """List the topics.

    Example: tidemill topic list --json
    """
    page = _page(admin(broker_at(bootstrap, access)), internal=internal)
    if as_json:
        show_document(page)
        return
    columns = ("topic", "partitions", "replicas")
    rows = [{column: getattr(each, column) for column in columns} for each in page.topics]
    hint = "there are no topics yet; create one with: tidemill topic create orders"
    show(rows, columns, as_json=False, empty=hint)


@app.command()
def describe(name: Name, bootstrap: Bootstrap = None, access: Client = None, as_json: Json = False) -> None:
    """Show partitions, offsets, sizes and the settings that the topic has of its own.

    Example: tidemill topic describe orders
    """
    broker = broker_at(bootstrap, access)
    described = _description(admin(broker), broker, name)
    if as_json:
        show_document(described)
        return
    columns = ("partition", "leader", "replicas", "isr", "start", "end", "records", "bytes")
    rows = [{column: _cell(getattr(each, column)) for column in columns} for each in described.partitions]
    show(rows, columns, as_json=False)
    for setting, value in sorted((described.config or {}).items()):
        say(f"{setting}={value}")


@app.command()
def alter(
    name: Name,
    config: Configs = None,
    unset: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Reset a setting to its default. Repeatable.")
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", help="New number of partitions.", min=1, max=PARTITIONS_MAX),
    ] = None,
    bootstrap: Bootstrap = None,
    access: Client = None,
    as_json: Json = False,
) -> None:
    """Change settings, or add partitions.

    Example: tidemill topic alter orders --config retention.ms=3600000 --partitions 6
    """
    overrides = pairs(config or [], "--config")
    if not overrides and not unset and partitions is None:
        raise WrongUse("nothing to change; give --config NAME=VALUE, --unset NAME or --partitions N")
    client = admin(broker_at(bootstrap, access))
    describe_topic(client, name)
    if overrides or unset:
        _alter_configs(client, name, dict(overrides), unset or [])
        changed = [f"{setting}={value}" for setting, value in overrides.items()] + [
            f"{each} unset" for each in unset or []
        ]
        if not as_json:
            say(f"altered {name}: {', '.join(changed)}")
    if partitions is not None:
        from confluent_kafka.admin import NewPartitions

        answer(client.create_partitions([NewPartitions(name, partitions)])[name], f"grow {name}")
        if not as_json:
            say(f"{name} has {partitions} partitions")
    if as_json:
        show_json({"topic": name, "config": overrides, "unset": unset or [], "partitions": partitions})


@app.command()
def delete(
    names: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Topics to delete with all their records.")],
    yes: Yes = False,
    bootstrap: Bootstrap = None,
    access: Client = None,
    as_json: Json = False,
) -> None:
    """Delete topics and all their records.

    Example: tidemill topic delete orders --yes
    """
    client = admin(broker_at(bootstrap, access))
    known = _topics(client)
    for name in names:
        if name not in known:
            raise CommandFailed(f"there is no topic {name}; see: tidemill topic list")
    confirm(f"delete {', '.join(names)} and all their records?", yes=yes)
    futures = client.delete_topics(names, operation_timeout=TIMEOUT_S)
    with progress("deleting", len(names)) as advance:
        for name, future in futures.items():
            answer(future, f"delete {name}")
            advance(1)
            if not as_json:
                say(f"deleted {name}")
    if as_json:
        show_json({"deleted": names})


@app.command()
def reassign(
    name: Name,
    replicas: Annotated[
        str | None, typer.Option(metavar="BROKERS", help="Brokers of the replicas, the leader first: 1,2,3.")
    ] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition. Default: all.")] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel running moves.")] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return when the move has started.")] = False,
    bootstrap: Bootstrap = None,
    access: Client = None,
    as_json: Json = False,
) -> None:
    """Move the replicas of a topic to other brokers, or change their number.

    New replicas copy the data before old ones are removed. With several partitions the brokers take turns as leader.

    Example: tidemill topic reassign orders --replicas 1,2,3
    """
    from tidemill.cli.cluster import wait_for_moves
    from tidemill.client.kafka import ClientError, KafkaClient
    from tidemill.model.errors import KafkaError

    if (replicas is None) != cancel:
        raise WrongUse("nothing to do; give --replicas 1,2,3, or --cancel to cancel a move")
    brokers = _brokers(replicas) if replicas is not None else None
    broker = broker_at(bootstrap, access)
    describe_topic(admin(broker), name)
    try:
        with KafkaClient(broker.options) as client:
            wanted = _moves(sorted(client.carriers([name])), partition, brokers)
            for key, error in client.reassign(wanted).items():
                if error is not None:
                    raise CommandFailed(f"move {key}: {error}")
            if not no_wait:
                wait_for_moves(client, len(wanted))
            rows = [
                {"partition": key.partition, "leader": each.leader, "replicas": ",".join(map(str, each.replicas))}
                for key, each in sorted(client.carriers([name]).items())
                if key in wanted
            ]
    except (KafkaError, ClientError) as error:
        raise CommandFailed(f"move {name}: {error}") from None
    show(rows, ("partition", "leader", "replicas"), as_json=as_json)


def _brokers(text: str) -> tuple[int, ...]:
    try:
        brokers = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise WrongUse(f"--replicas {text!r} is not a list of broker ids like 1,2,3") from None
    if len(set(brokers)) != len(brokers):
        raise WrongUse(f"--replicas {text} names a broker twice")
    return brokers


def _moves(
    known: list[Any], partition: int | None, brokers: tuple[int, ...] | None
) -> dict[Any, tuple[int, ...] | None]:
    chosen = [key for key in known if partition is None or key.partition == partition]
    if not chosen:
        raise CommandFailed(f"{known[0].topic} has partitions 0 to {known[-1].partition}, not {partition}")
    if brokers is None:
        return dict.fromkeys(chosen)
    turns = len(brokers)
    return {key: tuple(brokers[(step + place) % turns] for step in range(turns)) for place, key in enumerate(chosen)}


def _topics(client: "AdminClient") -> dict[str, Any]:
    with kafka_errors("list topics"):
        return dict(client.list_topics(timeout=TIMEOUT_S).topics)


def _configs(client: "AdminClient", name: str) -> list[Any]:
    from confluent_kafka.admin import ConfigResource, ResourceType

    resource = ConfigResource(ResourceType.TOPIC, name)
    return list(answer(client.describe_configs([resource])[resource], f"describe {name}").values())


def _alter_configs(client: "AdminClient", name: str, overrides: dict[str, str], unset: list[str]) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    changes = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in overrides.items()]
    changes += [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in unset]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=changes)
    answer(client.incremental_alter_configs([resource])[resource], f"alter {name}")


def _sizes(broker: "KafkaBroker", name: str, partitions: list[int]) -> dict[int, int]:
    """The size of each partition in bytes. confluent-kafka cannot request it, so our own client does."""
    from tidemill.client.kafka import ClientError, KafkaClient
    from tidemill.model.errors import KafkaError
    from tidemill.model.topics import TopicPartition

    try:
        with KafkaClient(broker.options) as client:
            found = client.sizes(TopicPartition(name, index) for index in partitions)
    except (KafkaError, ClientError) as error:
        raise CommandFailed(f"describe {name}: {error}") from None
    return {partition.partition: size for partition, size in found.items()}


def _page(client: "AdminClient", *, internal: bool) -> "TopicPage":
    """All topics, as the JSON API lists them. Their sizes are not asked for: there can be thousands of topics."""
    from tidemill.model.topics import INTERNAL
    from tidemill.wire.http.topics import TopicPage, TopicRow

    rows = [
        TopicRow(
            topic=name,
            internal=name in INTERNAL,
            partitions=len(topic.partitions),
            replicas=max((len(each.replicas) for each in topic.partitions.values()), default=0),
            records=None,
            bytes=None,
            storage=None,
            records_in=None,
            bytes_in=None,
            bytes_out=None,
            cleanup_policy=None,
            without_leader=sum(each.leader < 0 for each in topic.partitions.values()),
            under_replicated=sum(len(each.isrs) < len(each.replicas) for each in topic.partitions.values()),
            under_min_isr=None,
        )
        for name, topic in sorted(_topics(client).items())
        if internal or name not in INTERNAL
    ]
    return TopicPage(topics=rows, total=len(rows), problems=None, unreachable_brokers=[])


def _description(client: "AdminClient", broker: "KafkaBroker", name: str) -> "TopicDescription":
    """One topic, as the JSON API describes it."""
    from confluent_kafka.admin import ConfigSource

    from tidemill.wire.http.topics import PartitionRow, TopicDescription

    described = describe_topic(client, name)
    indexes = sorted(partition.id for partition in described.partitions)
    starts, ends = offsets_of(client, name, indexes)
    stable, sizes = stable_offsets_of(client, name, indexes), _sizes(broker, name, indexes)
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return TopicDescription(
        topic=name,
        topic_id=_uuid(described.topic_id),
        internal=described.is_internal,
        partitions=[
            PartitionRow(
                partition=each.id,
                leader=each.leader.id if each.leader else None,
                replicas=[node.id for node in each.replicas],
                isr=[node.id for node in each.isr],
                leader_epoch=None,
                start=starts[each.id],
                end=ends[each.id],
                stable=stable[each.id],
                records=ends[each.id] - starts[each.id],
                bytes=sizes[each.id],
            )
            for each in sorted(described.partitions, key=lambda each: each.id)
        ],
        config={entry.name: entry.value for entry in _configs(client, name) if entry.source == own},
        unreachable_brokers=[],
    )


def _uuid(found: Any) -> str | None:
    """The id of a topic; None from a broker without ids of topics."""
    from uuid import UUID

    bits = [number % 2**64 for number in (found.get_most_significant_bits(), found.get_least_significant_bits())]
    return str(UUID(int=bits[0] << 64 | bits[1])) if any(bits) else None


def _cell(value: Any) -> Any:
    """A value of a document for a table."""
    return ",".join(map(str, value)) if isinstance(value, list) else value


def offsets_of(client: "AdminClient", topic: str, partitions: list[int]) -> tuple[dict[int, int], dict[int, int]]:
    """The start and end offsets of each partition, requested for all at once."""
    from confluent_kafka.admin import OffsetSpec

    earliest = _offsets(client, topic, partitions, OffsetSpec.earliest())
    return earliest, _offsets(client, topic, partitions, OffsetSpec.latest())


def stable_offsets_of(client: "AdminClient", topic: str, partitions: list[int]) -> dict[int, int]:
    """The last stable offset of each partition: consumers of committed records can read below it."""
    from confluent_kafka import IsolationLevel
    from confluent_kafka.admin import OffsetSpec

    return _offsets(client, topic, partitions, OffsetSpec.latest(), isolation_level=IsolationLevel.READ_COMMITTED)


def _offsets(client: "AdminClient", topic: str, partitions: list[int], spec: Any, **options: Any) -> dict[int, int]:
    from confluent_kafka import TopicPartition

    futures = client.list_offsets({TopicPartition(topic, partition): spec for partition in partitions}, **options)
    return {each.partition: answer(future, f"offsets of {topic}").offset for each, future in futures.items()}
