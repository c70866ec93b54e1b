"""Decisions of a run that need no I/O: masters, errors of Kubernetes, progress, and the data of reports."""
