"""`host:port`, as people write it."""

from __future__ import annotations

import ipaddress
import os
import socket
from dataclasses import dataclass

from ingero_mcp.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen or connect. `port` 0 lets the system choose one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """True if only this host can connect. A name other than localhost may resolve to anything: not loopback."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def reachable(self) -> Address:
        """Where this host reaches what listens here: loopback for an address that stands for all of them."""
        everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}
        return Address(everywhere.get(self.host, self.host), self.port)


def parse_address(text: str, flag: str) -> Address:
    """`127.0.0.1:8080`, `[::1]:8080`, `node-1:8080`; ConfigError naming `flag` for anything else."""
    host, separator, port = text.strip().rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not separator or not host or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"{flag} {text!r} is not an address; write host:port, for example {flag} 127.0.0.1:8080")
    return Address(host, int(port))


def listen(address: Address, flag: str) -> socket.socket:
    """A listening socket; ConfigError in one line when the address cannot be had."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server((address.host, address.port), family=family, backlog=512)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {address}: {os.strerror(error.errno) if error.errno else error}; choose another with "
            f"{flag} {Address(address.host, (address.port + 1000) % 65536)}"
        ) from error
