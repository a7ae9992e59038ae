"""Who can connect to a server: its addresses, its token, its TLS files, and what is refused unless asked for."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from ingero_mcp.addresses import Address, parse_address
from ingero_mcp.config import ServeSettings
from ingero_mcp.errors import ConfigError
from ingero_mcp.tokens import read_token


@dataclass(frozen=True, slots=True)
class Exposure:
    """Checked: addresses with the flags they came from, the token ("" for none), PEM bytes, notes for the operator.

    `tls` is (private key, certificate chain, client CA or None), or None for plain text.
    """

    http: tuple[tuple[Address, str], ...]
    otlp: Address | None
    otlp_http: Address | None
    token: str
    tls: tuple[bytes, bytes, bytes | None] | None
    notes: tuple[str, ...]


def exposure(settings: ServeSettings) -> Exposure:
    """Check the settings. ConfigError for what the operator did not ask for in so many words."""
    flags = ("--http-addr", "--mcp-addr", "--health-addr")
    texts = (settings.http_addr, settings.mcp_addr, settings.health_addr)
    http = tuple((parse_address(text, flag), flag) for text, flag in zip(texts, flags, strict=True) if text)
    if not http:
        raise ConfigError("--http-addr is empty; a server has to answer somewhere, for example on 127.0.0.1:8080")
    otlp = parse_address(settings.otlp_addr, "--otlp-addr") if settings.otlp_addr else None
    otlp_http = parse_address(settings.otlp_http_addr, "--otlp-http-addr") if settings.otlp_http_addr else None
    token = _token(settings)
    tls = _tls(settings)
    addresses = [*(address for address, _ in http), *(address for address in (otlp, otlp_http) if address)]
    return Exposure(http, otlp, otlp_http, token, tls, _notes(settings, addresses, bool(token), tls is not None))


def _notes(settings: ServeSettings, addresses: list[Address], has_token: bool, has_tls: bool) -> tuple[str, ...]:
    exposed = [str(address) for address in addresses if not address.is_loopback]
    if exposed and not has_token and not settings.insecure_no_auth:
        raise ConfigError(
            f"{exposed[0]} can be reached from other hosts: give --auth-token-file FILE, or accept everybody with "
            "--insecure-no-auth"
        )
    if exposed and not has_tls and not settings.insecure_no_tls:
        raise ConfigError(
            f"{exposed[0]} can be reached from other hosts: give --tls-cert and --tls-key, or send everything, the "
            "token too, in the clear with --insecure-no-tls"
        )
    notes: list[str] = []
    if not has_token:
        who = "everybody who can reach it" if exposed else "every user of this host"
        notes.append(f"no token: {who} can send and ask")
    if exposed and not has_tls:
        notes.append("no TLS: telemetry and tokens travel in the clear")
    return tuple(notes)


def _token(settings: ServeSettings) -> str:
    if settings.auth_token and settings.auth_token_file:
        raise ConfigError("give --auth-token-file or --auth-token, not both")
    return read_token(Path(settings.auth_token_file)) if settings.auth_token_file else settings.auth_token


def _tls(settings: ServeSettings) -> tuple[bytes, bytes, bytes | None] | None:
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise ConfigError("--tls-cert and --tls-key belong together; give both")
    if settings.client_ca and not settings.tls_cert:
        raise ConfigError("--client-ca needs --tls-cert and --tls-key")
    if not settings.tls_cert:
        return None
    try:
        # What the listeners will do later, done now: a wrong file is then one line and nothing was opened.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(Path(settings.tls_cert).expanduser(), Path(settings.tls_key).expanduser())
        if settings.client_ca:
            context.load_verify_locations(Path(settings.client_ca).expanduser())
    except OSError as error:
        raise ConfigError(
            f"--tls-cert, --tls-key or --client-ca cannot be used: {error.strerror or error}; PEM files are wanted, "
            "and the key must be the certificate's"
        ) from error
    return _read(settings.tls_key), _read(settings.tls_cert), _read(settings.client_ca) if settings.client_ca else None


def _read(path: str) -> bytes:
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
