"""What the states of groups mean, in one or two sentences, with what to do next."""

EXPLANATIONS = {
    ("classic", "Stable"): "Each member has its partitions and reads them.",
    ("classic", "PreparingRebalance"): (
        "The group waits until all its members have joined again. If this takes long, a member is busy longer than its "
        "rebalance timeout."
    ),
    ("classic", "CompletingRebalance"): "All members have joined, and wait for the assignment of their leader.",
    ("consumer", "Stable"): "Each member has its partitions and reads them.",
    ("share", "Stable"): "The members fetch records, and each record goes to one of them.",
    ("consumer", "Assigning"): "The broker computes a new assignment.",
    ("consumer", "Reconciling"): (
        "Members give up partitions that others get. The others continue to read. If this takes long, a member does "
        "not return from its processing."
    ),
}
EMPTY = (
    "The group has no members. Its committed offsets are kept until offsets.retention.minutes are over; a consumer "
    "that joins continues there. You can reset its offsets now."
)
EMPTY_SHARE = (
    "The group has no members. What it has done is kept until the group is deleted; a consumer that joins continues "
    "there. tidemill share reset-offsets moves it."
)
NEVER_COMMITTED = "The group has no members and no committed offsets. It is deleted when its retention is over."
OFFSETS_ONLY = (
    "The group never had members. A program that assigns partitions by itself, or a reset, has committed its offsets."
)
NOTES = (
    "A pipeline keeps notes in the metadata of these offsets, such as what its topic sink has committed. They are no "
    "positions in the topic and have no lag. Do not reset or delete them while the pipeline is used."
)
DEAD = "The group does not exist any more, or its coordinator has just changed."


def explanation_of(kind: str, state: str, *, protocol: str, has_offsets: bool, has_notes: bool = False) -> str:
    """What the state of a group means."""
    if kind == "share" and state == "Empty":
        return EMPTY_SHARE
    if state == "Empty":
        if has_notes:
            return NOTES
        if not has_offsets:
            return NEVER_COMMITTED
        return EMPTY if protocol else OFFSETS_ONLY
    return EXPLANATIONS.get((kind, state), DEAD)
