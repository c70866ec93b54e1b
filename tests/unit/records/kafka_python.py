"""kafka-python's batches; importing it warns about its own use of importlib, which is not our concern."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

__all__ = ["KafkaPythonBatch", "KafkaPythonBuilder"]
