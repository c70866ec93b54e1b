"""The decisions of transactions, without IO.

`state` is the state of one transactional id, `rules` makes the decisions, `records` encodes the journal records,
`table` holds every id and is rebuilt by replaying those records.
"""
