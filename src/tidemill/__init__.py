"""Tidemill: streams for every Kafka client, timelines, and data pipelines, in one package."""

__version__ = "0.1.0"
