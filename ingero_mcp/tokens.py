"""Bearer tokens: who may send and ask."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from ingero_mcp.errors import ConfigError

ANONYMOUS = "anonymous"


class Tokens:
    """The accepted tokens by name; no tokens at all means that everybody is `anonymous` and accepted."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        # Digests have one length, so the comparison takes the same time whatever was sent.
        self._digests = {name: sha256(token.encode()).digest() for name, token in tokens.items()}

    def name_of(self, authorization: str | None) -> str | None:
        """The name of the token in an `Authorization: Bearer ...` header; None if it must be refused."""
        if not self._digests:
            return ANONYMOUS
        scheme, _, token = (authorization or "").partition(" ")
        offered = sha256(token.strip().encode()).digest()
        accepted = None
        for name, digest in self._digests.items():
            if hmac.compare_digest(digest, offered):
                accepted = name
        return accepted if scheme.lower() == "bearer" else None


def read_token(path: Path) -> str:
    """The token in a file; ConfigError if it cannot be read or holds none."""
    try:
        token = path.expanduser().read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"cannot read the token file {path}: {reason}") from error
    if not token:
        raise ConfigError(f"the token file {path} is empty; make a token with: openssl rand -hex 32 > {path}")
    return token
