"""The limits of messages and metadata on gRPC channels, the same for the server and for calls to other brokers."""

METADATA_BYTES_MAX = 32 * 1024
"""Space for a login by a large token."""
MESSAGE_BYTES_MAX = 65 * 1024 * 1024
"""The largest body that a timeline can allow, plus space for its other fields."""
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_metadata_size", METADATA_BYTES_MAX),
    ("grpc.absolute_max_metadata_size", METADATA_BYTES_MAX),
    ("grpc.enable_http_proxy", 0),  # for calls that are forwarded to other brokers; see `client/http.py`
)
