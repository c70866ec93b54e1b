"""kafka-python's batches. Importing kafka-python warns about its use of importlib, so the warning is ignored here."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

__all__ = ["KafkaPythonBatch", "KafkaPythonBuilder"]
