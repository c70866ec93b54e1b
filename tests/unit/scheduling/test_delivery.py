"""Due records on their way to the leader of their partition."""

from typing import Any

import pytest

from tidemill.model.errors import InvalidRecord
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import read_header
from tidemill.records.read import read_records
from tidemill.scheduling.core.batch_split import Origin, split_batch
from tidemill.scheduling.delivery import by_partition, received, to_send, to_store
from tidemill.timelines.consumer import Granted
from tidemill.timelines.core.lease import LeaseGrant
from tidemill.timelines.core.message import TimedMessage

NOW_MS = 1_800_000_000_000
Headers = tuple[tuple[str, bytes | None], ...]


def _plan(*headers: Headers, **more: object) -> object:
    batch = build_batch([NewRecord(b"k", b"v", each, NOW_MS) for each in headers], **more)  # type: ignore[arg-type]
    return split_batch(batch, read_header(batch), 3, NOW_MS)


def test_a_delivery_carries_its_lease_and_stores_the_record_without() -> None:
    plan: Any = _plan(
        (("tidemill-deliver-at", b"5"), ("tidemill-message", b"forged")),
        producer_id=4,
        producer_epoch=1,
        base_sequence=9,
    )
    body = plan.waiting[0].body
    message = TimedMessage(7, "a", 5, 5, 0, "", None, 0, 1, 2, len(body), None, body)
    [entries] = by_partition(
        [Granted(message, LeaseGrant(7, 3, "h", 900, 2))], lambda one: b"%s@%d" % (one.id.encode(), one.seq)
    ).values()
    sent = received(to_send(entries))
    assert sent is not None
    assert [one._replace(record=one.record) for one in sent] == [
        one._replace(seq=0, token=0, size=0) for one in entries
    ]
    assert sent[0][1:6] == (b"a@7", 5, 2, 900, Origin(3, 4, 1, 9))
    [stored] = read_records(to_store(sent, NOW_MS))
    assert stored.headers == (("tidemill-deliver-at", b"5"), ("tidemill-message", b"a@7"))
    assert stored.timestamp == NOW_MS
    assert received(build_batch([NewRecord(b"k", b"v", (), NOW_MS)])) is None


def test_a_lease_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="has no valid lease"):
        received(build_batch([NewRecord(b"k", b"v", (("tidemill-lease", b"?"),), NOW_MS)]))
