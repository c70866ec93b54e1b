"""The cluster: its topics, its brokers, and the coordination store that they agree on."""
