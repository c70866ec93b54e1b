"""Traces: spans of records and of timed messages, for OpenTelemetry."""
