"""Dashboards for Grafana, and rules for Prometheus, as tables and what writes them as files."""
