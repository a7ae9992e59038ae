"""Settings: one definition each, from which flags, environment variables, the settings file and the docs derive.

Precedence: flag > environment (`INGERO_OTLP_ADDR`) > settings file (`otlp_addr:`) > default. The settings file is the
first of `$INGERO_CONFIG`, `./ingero.yaml`, `~/.config/ingero/ingero.yaml`, `/etc/ingero/ingero.yaml`. Only this module
reads the environment.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import yaml

from ingero_mcp.analysis.threshold import LEAST_K, MOST_K, Rule
from ingero_mcp.errors import ConfigError
from ingero_mcp.limits import MIB, StoreLimits
from ingero_mcp.process_memory import least_bytes

_PREFIX: Final = "INGERO_"
# Read elsewhere: which settings file, and what the tests of this project understand.
_OTHER_VARIABLES: Final = frozenset({"INGERO_CONFIG", "INGERO_KEEP_DEMO_DB", "INGERO_REQUIRE_EBPF"})
_TRUE, _FALSE = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off", ""})
# What queries and the writer get of the memory this process may use; the rest is for Python, gRPC and results.
_DUCKDB_SHARE: Final = 0.4
_PROCESS_SHARE: Final = 0.9


def setting(
    default: Any,
    doc: str,
    *,
    aliases: tuple[str, ...] = (),
    least: float | None = None,
    most: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """A field of a settings class: default, one line of documentation, further names of its flag, what is accepted."""
    accepted = {"least": least, "most": most, "choices": choices}
    return dataclasses.field(default=default, metadata={"doc": doc, "aliases": aliases, **accepted})


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """What `ingero serve` can be told."""

    db_path: str = setting("~/.ingero/ingero.duckdb", "database file; made if it does not exist")
    otlp_addr: str = setting("127.0.0.1:4317", "address for OTLP/gRPC")
    otlp_http_addr: str = setting("127.0.0.1:4318", "address for OTLP/HTTP (/v1/traces, /v1/metrics, /v1/logs)")
    http_addr: str = setting("127.0.0.1:8080", "address for MCP (/mcp and /), the API, /healthz, /metrics")
    mcp_addr: str = setting("", "further address for the same as --http-addr")
    health_addr: str = setting("", "further address for the same as --http-addr")
    auth_token: str = setting("", "token that clients must send; seen by everybody who can list processes")
    auth_token_file: str = setting("", "file that holds the token that clients must send")
    insecure_no_auth: bool = setting(False, "accept clients without a token on any address")
    tls_cert: str = setting("", "PEM file with the certificate chain")
    tls_key: str = setting("", "PEM file with the private key")
    client_ca: str = setting("", "PEM file with the CA whose client certificates are required")
    insecure_no_tls: bool = setting(False, "serve without TLS on any address", aliases=("--no-tls",))
    allowed_hosts: str = setting("", "further Host headers to accept, comma separated, e.g. gpu-head:8080")
    tool_names: str = setting("auto", "spelling of MCP tool names", choices=("auto", "dotted", "underscore"))
    max_message_mib: int = setting(32, "largest OTLP message in MiB", least=1)
    query_timeout_s: float = setting(15.0, "seconds a query may run", least=0.1)
    memory_mib: int = setting(0, "memory of the database in MiB; 0: 40 % of what this process may use", least=0)

    watch_every_s: float = setting(5.0, "seconds between looks at the jobs that run; 0: no watch", least=0)
    webhook_url: str = setting("", "address that is told of stalls; as INGERO_WEBHOOK_URL it is not seen by others")
    webhook_format: str = setting("json", "what the webhook is sent", choices=("json", "alertmanager", "slack"))
    webhook_severity: str = setting("MEDIUM", "least severity that it is told of", choices=("LOW", "MEDIUM", "HIGH"))
    webhook_token_file: str = setting("", "file that holds the token to send to the webhook")

    process_memory_mib: int = setting(
        0, "most MiB this process may allocate; 0: 90 % of what it may use, and never too little to work", least=0
    )

    threshold_k: float = setting(
        2.0, "robust deviations below the median at which Ingero agents call a node slow", least=LEAST_K, most=MOST_K
    )
    threshold_ema_alpha: float = setting(
        0.2, "share of the newest in the threshold told to Ingero agents; 1: not smoothed", least=0.001, most=1
    )
    threshold_least_nodes: int = setting(5, "active nodes without which Ingero agents get no threshold", least=1)
    push_interval_s: float = setting(10.0, "seconds between two pushes of an Ingero agent", least=1)

    def threshold_rule(self) -> Rule:
        """How the threshold is made that Ingero agents are told."""
        return Rule(self.threshold_k, self.threshold_ema_alpha, self.threshold_least_nodes)

    def process_memory_bytes(self) -> int:
        """What the operating system is told to hold this process to."""
        least = least_bytes(self.limits().memory_bytes)
        if not self.process_memory_mib:
            return max(least, int(usable_memory_bytes() * _PROCESS_SHARE))
        if self.process_memory_mib * MIB < least:
            raise ConfigError(
                f"--process-memory-mib is {self.process_memory_mib}; with {self.limits().memory_bytes // MIB} MiB for "
                f"the database it must be at least {-(-least // MIB)}, or give --memory-mib less"
            )
        return self.process_memory_mib * MIB

    def limits(self) -> StoreLimits:
        """The bounds of the store, with the memory that the host or its cgroup leaves."""
        memory = self.memory_mib * MIB or int(usable_memory_bytes() * _DUCKDB_SHARE)
        return StoreLimits(memory_bytes=memory, query_timeout_s=self.query_timeout_s, threads=os.cpu_count() or 1)


def serve_settings(flags: Mapping[str, object]) -> ServeSettings:
    """Settings of `serve` from flags (None: not given), the environment, the settings file and the defaults."""
    _require_known_variables()
    path, file = _settings_file()
    known = {field.name: field for field in dataclasses.fields(ServeSettings)}
    for key in file:
        if key not in known:
            near = get_close_matches(str(key), known, 1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise ConfigError(f"{path}: unknown setting {key!r}; {hint}")
    values: dict[str, Any] = {}
    for name, field in known.items():
        kind = type(field.default)
        if flags.get(name) is not None:
            values[name] = flags[name]
        elif (variable := _PREFIX + name.upper()) in os.environ:
            values[name] = _convert(os.environ[variable], kind, variable)
        elif name in file:
            values[name] = _convert(file[name], kind, f"{path}: {name}")
    settings = ServeSettings(**values)
    for field in known.values():
        _require_accepted(field, getattr(settings, field.name))
    return settings


def _require_accepted(field: dataclasses.Field[Any], value: Any) -> None:
    least, most, choices = (field.metadata[name] for name in ("least", "most", "choices"))
    flag = "--" + field.name.replace("_", "-")
    if least is not None and not (least <= value < float("inf")):
        raise ConfigError(f"{flag} is {value}; it must be a number from {least:g} upward, e.g. {flag} {field.default}")
    if most is not None and value > most:
        raise ConfigError(f"{flag} is {value}; it must be from {least:g} to {most:g}, e.g. {flag} {field.default}")
    if choices and value not in choices:
        raise ConfigError(f"{flag} is {value!r}; it must be one of {', '.join(choices)}")


def _require_known_variables() -> None:
    known = {_PREFIX + field.name.upper() for field in dataclasses.fields(ServeSettings)} | _OTHER_VARIABLES
    for name in os.environ:
        if name.startswith(_PREFIX) and name not in known:
            near = get_close_matches(name, known, 1)
            raise ConfigError(f"unknown environment variable {name}" + (f"; did you mean {near[0]}?" if near else ""))


def home() -> Path:
    """The folder of this user's own files, `~/.ingero`."""
    return Path("~/.ingero").expanduser()


def usable_memory_bytes() -> int:
    """What this process may use: the smallest of the host's memory and the limits of its cgroups."""
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([host, *_cgroup_limits()])


def _cgroup_limits() -> list[int]:
    """Memory limits of the cgroup and its parents (v2), or of the v1 memory controller."""
    limits = []
    try:
        own = Path("/proc/self/cgroup").read_text()
    except OSError:
        return []
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        root = Path("/sys/fs/cgroup/memory" if "memory" in controllers.split(",") else "/sys/fs/cgroup")
        folder = root / path.lstrip("/")
        for candidate in (folder, *folder.parents):
            for name in ("memory.max", "memory.high", "memory.limit_in_bytes"):
                try:
                    text = (candidate / name).read_text().strip()
                except OSError:
                    continue
                if text.isdigit():
                    limits.append(int(text))
            if candidate == root:
                break
    return limits


def _settings_file() -> tuple[Path, dict[str, Any]]:
    named = os.environ.get("INGERO_CONFIG")
    candidates = (
        [Path(named)]
        if named
        else [Path("ingero.yaml"), Path("~/.config/ingero/ingero.yaml").expanduser(), Path("/etc/ingero/ingero.yaml")]
    )
    for path in candidates:
        if path.exists():
            return path, _read_yaml(path)
        if named:
            raise ConfigError(f"INGERO_CONFIG names {path}, which does not exist")
    return candidates[0], {}


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read as YAML: {str(error).splitlines()[0]}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path} must hold settings, for example 'otlp_addr: 127.0.0.1:4317'")
    return content


def _convert(value: Any, kind: type, origin: str) -> Any:
    text = str(value).strip()
    if kind is bool:
        if text.lower() in _TRUE | _FALSE:
            return text.lower() in _TRUE
        raise ConfigError(f"{origin} is {text!r}; write true or false")
    try:
        return kind(text)
    except ValueError:
        raise ConfigError(f"{origin} is {text!r}, which is not a number") from None
