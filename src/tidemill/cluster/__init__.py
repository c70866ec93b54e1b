"""The cluster: which topics there are and which brokers carry them."""
