"""Settings: flag over environment over file over default; a mistake names its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingero_mcp.config import ServeSettings, serve_settings, usable_memory_bytes
from ingero_mcp.errors import ConfigError


def test_the_nearest_source_wins(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert serve_settings({}).http_addr == ServeSettings().http_addr
    (home / "ingero.yaml").write_text("http_addr: 127.0.0.1:1\notlp_addr: 127.0.0.1:2\nquery_timeout_s: 3\n")
    assert serve_settings({}).http_addr == "127.0.0.1:1"
    monkeypatch.setenv("INGERO_HTTP_ADDR", "127.0.0.1:4")
    settings = serve_settings({"otlp_addr": "127.0.0.1:5", "db_path": None})
    assert (settings.http_addr, settings.otlp_addr, settings.query_timeout_s) == ("127.0.0.1:4", "127.0.0.1:5", 3.0)


def test_a_named_settings_file_is_the_only_one_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "ingero.yaml").write_text("http_addr: 127.0.0.1:1\n")
    monkeypatch.setenv("INGERO_CONFIG", str(home / "other.yaml"))
    with pytest.raises(ConfigError, match=r"other\.yaml, which does not exist"):
        serve_settings({})
    (home / "other.yaml").write_text("insecure_no_auth: yes\n")
    assert serve_settings({}) == ServeSettings(insecure_no_auth=True)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("otlp_adr: x", "did you mean otlp_addr"),
        ("- a list", "must hold settings"),
        ("a: [", "cannot be read as YAML"),
        ("max_message_mib: many", "ingero.yaml: max_message_mib is 'many'"),
        ("insecure_no_tls: perhaps", "write true or false"),
    ],
)
def test_a_wrong_settings_file_is_explained(home: Path, content: str, words: str) -> None:
    (home / "ingero.yaml").write_text(content)
    with pytest.raises(ConfigError, match=words):
        serve_settings({})


def test_memory_is_what_this_process_may_use_not_what_the_host_has() -> None:
    assert 0 < ServeSettings().limits().memory_bytes < usable_memory_bytes()
    assert ServeSettings(memory_mib=100).limits().memory_bytes == 100 << 20


def test_the_process_gets_more_than_its_database_and_never_too_little_to_work() -> None:
    small = ServeSettings(memory_mib=100)
    assert small.process_memory_bytes() > small.limits().memory_bytes + (1 << 30)
    assert ServeSettings(memory_mib=100, process_memory_mib=4000).process_memory_bytes() == 4000 << 20
    with pytest.raises(ConfigError, match="--process-memory-mib is 500; with 100 MiB for the database it must be at"):
        ServeSettings(memory_mib=100, process_memory_mib=500).process_memory_bytes()
