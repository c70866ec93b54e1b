"""The name of a sink: stable across restarts of its query, and unique to the query.

It is the query id that Spark stores in the checkpoint. Where the checkpoint cannot be read from here (HDFS, S3), it is
the address of the checkpoint. An address with a scheme means the same place on every machine.
"""

from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from tidemill.pipelines.errors import PipelineError, WrongOption
from tidemill.pipelines.spark.lake import query_of

DIGITS = 32


def sink_of(location: str | None) -> str:
    """The name of the sink whose query has its checkpoint at this location."""
    if not location:
        raise WrongOption(
            "checkpointLocation is missing; set it as an option of the writer, or set transactional=false;  "
            "the sink needs it to find the transactions of an earlier driver"
        )
    parts = urlsplit(location)
    if parts.scheme not in {"", "file"}:
        return f"tidemill-{sha256(location.rstrip('/').encode()).hexdigest()[:DIGITS]}"
    try:
        return f"tidemill-{query_of(Path(url2pathname(parts.path)))}"
    except PipelineError as error:
        raise WrongOption(f"checkpointLocation: {error}; write the address with its scheme") from None
