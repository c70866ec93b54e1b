"""Removes the password of a private key, because gRPC takes keys without one."""

from cryptography.hazmat.primitives import serialization

from tidemill.client.kafka.errors import InvalidClientOption


def plain_key(pem: bytes, password: str) -> bytes:
    """The key without its password; InvalidClientOption when the password is wrong."""
    try:
        key = serialization.load_pem_private_key(pem, password.encode())
    except TypeError:  # it has no password
        return pem
    except ValueError:
        raise InvalidClientOption("the private key cannot be read; check ssl.key.password") from None
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
