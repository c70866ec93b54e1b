"""Export of metrics and traces by OTLP over HTTP.

Only `exporter.py` and what it imports need OpenTelemetry's packages.
"""
