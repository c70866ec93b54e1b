"""The name of a sink: the same after every restart of its query, and no other query's.

It is what Spark calls the id of the query, which is in the checkpoint. Where that cannot be read from here (HDFS, S3
and the like) it is the address of the checkpoint: one that has a scheme means the same place on every machine.
"""

from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from tidemill.pipelines.core.errors import PipelineError, WrongOption
from tidemill.pipelines.spark.lake import query_of

DIGITS = 32


def sink_of(location: str | None) -> str:
    """The name of the sink whose query has its checkpoint there."""
    if not location:
        raise WrongOption(
            "checkpointLocation is missing: give it as an option of the writer, or transactional=false; "
            "by it the sink finds what an earlier driver of the query left"
        )
    parts = urlsplit(location)
    if parts.scheme not in {"", "file"}:
        return f"tidemill-{sha256(location.rstrip('/').encode()).hexdigest()[:DIGITS]}"
    try:
        return f"tidemill-{query_of(Path(url2pathname(parts.path)))}"
    except PipelineError as error:
        raise WrongOption(f"checkpointLocation: {error}; write the address with its scheme") from None
