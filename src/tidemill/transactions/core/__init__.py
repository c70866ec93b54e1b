"""What a transaction decides, without IO.

`state` is what is known of one transactional id, `rules` are the decisions, `records` are the bytes in the journal,
`table` holds every id and is rebuilt by replaying those bytes.
"""
