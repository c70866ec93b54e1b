"""BrokerService and TimelineService."""
