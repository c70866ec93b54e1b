"""Journal entries come back as they were written, and anything else is refused."""

import pytest

from tidemill.timelines.core.errors import StoreCorrupt
from tidemill.timelines.core.frames import pack, unpack
from tidemill.timelines.core.journal_codec import decode_entry, encode_entry
from tidemill.timelines.core.journal_entries import (
    AdoptedMessages,
    DoneCommands,
    GrantedClaims,
    JournalEntry,
    KeptTimeline,
    PurgedMessages,
    RestatedCatalogue,
    RestatedMessages,
    ScheduledMessages,
)
from tidemill.timelines.core.lease import Cancel, Claim, Complete, Extend, Move, MoveToTimeline, Release
from tidemill.timelines.core.message import NewMessage, TimedMessage
from tidemill.timelines.core.timeline import TimelineInfo, TimelineSettings, TimelineState

LINE = TimelineInfo("line", 3, TimelineState.DELETING, TimelineSettings(lease_ms=7, body_bytes_max=9))
ENTRIES: list[JournalEntry] = [
    ScheduledMessages("line", 9, [NewMessage("a", 1, b"\x00\xff", 7, b"", "g"), NewMessage("ä", 2, b"", 8)]),
    GrantedClaims("line", [Claim(1, 2, "w", 5, 4)], 4, 100),
    DoneCommands(
        "line",
        [
            Complete(1, 2),
            Release(2, 3, 4),
            Extend(3, 4, 5),
            Cancel("a", "g"),
            Move("b", 6),
            MoveToTimeline(4, 2, "d", "x"),
        ],
        8,
    ),
    KeptTimeline(LINE),
    PurgedMessages("line", 5, is_last=True),
    RestatedCatalogue([LINE], 12, 3),
    AdoptedMessages("file/line", 7, "line", [TimedMessage(4, "a", 9, 2, 7, "", None, 3, 5, 2, 3, None, b"abc")]),
    AdoptedMessages("file/line", 7, "", []),
    RestatedMessages("line", [TimedMessage(4, "a", 9, 2, 7, "g", "w", 3, 5, 2, 3, b"k", b"abc")]),
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_an_entry_comes_back(entry: JournalEntry) -> None:
    assert decode_entry(encode_entry(entry)) == entry


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_an_entry_that_is_cut_short_is_refused(entry: JournalEntry) -> None:
    value = encode_entry(entry)
    for size in range(len(value)):
        with pytest.raises(StoreCorrupt):
            decode_entry(value[:size])


def test_an_entry_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(StoreCorrupt, match="newest version"):
        decode_entry(pack(["teleport", "line"]))
    with pytest.raises(StoreCorrupt):
        decode_entry(pack({"schedule": 1}))


def test_none_and_empty_data_stay_apart() -> None:
    _, blobs = unpack(pack([], [b"", None, b"x"]))
    assert [blobs.take(0), blobs.take(-1), blobs.take(1)] == [b"", None, b"x"]
