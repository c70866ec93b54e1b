"""When the journal is restated, so that its older part can be deleted.

A restatement writes all timelines, and then all messages, to the end of the journal, a few at a time. After the last of
them, nothing before the first is needed. It is worth its cost when the journal is much larger than what it restates.
"""

RESTATE_FACTOR = 3
"""The journal may grow to this many times the size of the last restatement before the next one begins."""
RESTATE_MESSAGES = 500
"""Messages that are restated at a time; calls wait for as long as these take."""
RESTATE_PAUSE_S = 0.02


def should_restate(journal_bytes: int, restated_bytes: int, least_bytes: int) -> bool:
    """Whether a restatement should begin; `restated_bytes` is the size of the last one."""
    return journal_bytes > max(least_bytes, RESTATE_FACTOR * restated_bytes)
