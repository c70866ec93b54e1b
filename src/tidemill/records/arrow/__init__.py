"""Converts record batches to Arrow columns and back; see `decoder`, `encoder` and `kernels`."""

from tidemill.records.arrow.batch_builder import BatchProducer, Draft, Encoded
from tidemill.records.arrow.buffers import DecompressedRecords
from tidemill.records.arrow.decoder import ROWS, Decoder, OnUnreadable, fail
from tidemill.records.arrow.encoder import BATCH_BYTES, Encoder
from tidemill.records.arrow.kernels import Kernels, load_kernels
from tidemill.records.arrow.partitioners import DEFAULT_PARTITIONER
from tidemill.records.arrow.schema import COLUMNS, SCHEMA, schema_of
from tidemill.records.arrow.warm_up import warm_up
from tidemill.records.hashing import CONSISTENT_RANDOM, MURMUR2_RANDOM, PARTITIONERS

__all__ = [
    "BATCH_BYTES",
    "COLUMNS",
    "CONSISTENT_RANDOM",
    "DEFAULT_PARTITIONER",
    "MURMUR2_RANDOM",
    "PARTITIONERS",
    "ROWS",
    "SCHEMA",
    "BatchProducer",
    "Decoder",
    "DecompressedRecords",
    "Draft",
    "Encoded",
    "Encoder",
    "Kernels",
    "OnUnreadable",
    "fail",
    "load_kernels",
    "schema_of",
    "warm_up",
]
