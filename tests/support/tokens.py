"""An issuer of tokens for tests: its keys as a JWKS file, and tokens that it signs."""

import json
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat


class Issuer:
    """Signs tokens with RSA keys. `publish` writes the public keys."""

    def __init__(self, *key_ids: str) -> None:
        self.keys = {name: rsa.generate_private_key(public_exponent=65537, key_size=2048) for name in key_ids}

    def document(self) -> bytes:
        made = []
        for name, key in self.keys.items():
            public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
            made.append({**public, "kid": name, "use": "sig"})
        return json.dumps({"keys": made}).encode()

    def publish(self, path: Path) -> str:
        path.write_bytes(self.document())
        return path.absolute().as_uri()

    def token(self, name: str, *, key_id: str | None = None, algorithm: str = "RS256", **claims: Any) -> str:
        """A token for a user that is valid for an hour, unless `claims` say otherwise."""
        key_id = key_id or next(iter(self.keys))
        now = int(time.time())
        content = {"sub": name, "iat": now, "exp": now + 3600, **claims}
        return jwt.encode(
            {each: value for each, value in content.items() if value is not None},
            self.keys[key_id],
            algorithm,
            headers={"kid": key_id},
        )

    def public_pem(self, key_id: str) -> bytes:
        return self.keys[key_id].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
