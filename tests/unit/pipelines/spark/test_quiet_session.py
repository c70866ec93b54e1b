"""A Spark that does not start is reported in one line."""

import os
from pathlib import Path

import pytest
from pyspark.errors import PySparkRuntimeError

from tidemill.pipelines.errors import PipelineError
from tidemill.pipelines.spark.quiet_session import quiet_session


def test_a_spark_that_does_not_start_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def session(*_: object, **__: object) -> None:
        os.write(2, b"WARN nothing\nException in thread: java.lang.OutOfMemoryError: no heap\n\tat a.b.C\n")
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr("tidemill.pipelines.spark.quiet_session.session", session)
    line = f"^Spark did not start on local: no heap; Spark's output is in {tmp_path}/spark.log$"
    with pytest.raises(PipelineError, match=line), quiet_session("local", "test", tmp_path, {}, print, verbose=False):
        pass
