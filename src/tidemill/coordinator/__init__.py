"""Runtime of the group and transaction coordinators: journals, internal topics, placement and transaction routing."""
