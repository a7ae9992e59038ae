"""Dotted and underscored tool names: one is listed, both are callable, and every text uses the listed one."""

from __future__ import annotations

import re

import pytest
from mcp import Client
from mcp.types import GetPromptResult, Implementation, TextContent

from ingero_mcp.errors import ConfigError
from ingero_mcp.mcp_server import build
from ingero_mcp.store import Store
from ingero_mcp.tools import TOOLS
from tests.tools.fleet import ANALYSIS, HISTORY, OUTLIERS, ask, next_of, put, samples, text_of

DOTTED = [tool.name for tool in TOOLS]
UNDERSCORED = [name.replace(".", "_") for name in DOTTED]
pytestmark = pytest.mark.anyio


async def listed(store: Store, mode: str, client: str, era: str) -> list[str]:
    server = build(store, tool_names=mode)
    async with Client(server, mode=era, client_info=Implementation(name=client, version="1")) as asking:
        return [tool.name for tool in (await asking.list_tools()).tools]


@pytest.mark.parametrize(
    "client",
    [
        "claude-ai",
        "claude-ai (via mcp-remote 0.1.37)",
        "Claude Desktop",
        "cursor-vscode",
        "Cursor",
        "Visual Studio Code",
        "Visual Studio Code - Insiders",
        "github-copilot-developer",
    ],
)
async def test_clients_that_refuse_dots_are_listed_underscores(store: Store, client: str, era: str) -> None:
    assert await listed(store, "auto", client, era) == UNDERSCORED


@pytest.mark.parametrize("client", ["mcp", "claude-code", "inspector-client", "ollmcp", "codex-mcp-client", ""])
async def test_every_other_client_is_listed_dots(store: Store, client: str, era: str) -> None:
    assert await listed(store, "auto", client, era) == DOTTED


@pytest.mark.parametrize("client", ["claude-ai", "mcp"])
@pytest.mark.parametrize(("mode", "names"), [("dotted", DOTTED), ("underscore", UNDERSCORED)])
async def test_a_mode_overrides_what_the_client_is(
    store: Store, mode: str, names: list[str], client: str, era: str
) -> None:
    assert await listed(store, mode, client, era) == names


@pytest.mark.parametrize("mode", ["auto", "dotted", "underscore"])
@pytest.mark.parametrize("name", [ANALYSIS, ANALYSIS.replace(".", "_")])
async def test_both_spellings_are_accepted_in_every_mode(store: Store, mode: str, name: str, era: str) -> None:
    result = await ask(store, name, {"sql": "SELECT 1 AS one"}, era=era, tool_names=mode)
    assert result.structured_content["rows"] == [[1]]


@pytest.mark.parametrize(("client", "expected"), [("claude-ai", HISTORY.replace(".", "_")), ("mcp", HISTORY)])
async def test_the_next_call_is_spelled_as_the_client_lists_it(
    store: Store, client: str, expected: str, era: str
) -> None:
    put(store, samples({"n1": [0.9, 0.9, 0.9]}))
    tool, _ = next_of(await ask(store, HISTORY, {"limit": 1}, era=era, client=client))
    assert tool == expected


async def test_refusals_are_spelled_as_the_client_lists_them(store: Store, era: str) -> None:
    text = text_of(await ask(store, ANALYSIS, {}, era=era, client="claude-ai"))
    assert "fleet_cluster_run_analysis" in text
    assert "fleet.cluster" not in text


@pytest.mark.parametrize("client", ["claude-ai", "mcp"])
async def test_instructions_descriptions_and_prompt_use_the_listed_names(store: Store, client: str, era: str) -> None:
    async with Client(build(store), mode=era, client_info=Implementation(name=client, version="1")) as asking:
        prompt = await asking.get_prompt("investigate")
        assert isinstance(prompt, GetPromptResult)
        content = prompt.messages[0].content
        assert isinstance(content, TextContent)
        descriptions = "".join(tool.description or "" for tool in (await asking.list_tools()).tools)
        for text in (asking.instructions or "", content.text):
            assert (OUTLIERS in text) == (client == "mcp")
            assert (OUTLIERS.replace(".", "_") in text) == (client == "claude-ai")
        assert client == "mcp" or "fleet.cluster" not in descriptions


def test_names_are_legal_and_unique_where_clients_are_strict() -> None:
    for name in UNDERSCORED:
        assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", name)
        assert len("ingero") + len(name) < 60
    assert len(set(UNDERSCORED)) == len(UNDERSCORED)


async def test_an_unknown_mode_is_refused_when_the_server_is_built(store: Store) -> None:
    with pytest.raises(ConfigError, match="auto, dotted, underscore"):
        build(store, tool_names="camel")


async def test_a_name_that_is_no_tool_is_an_error_of_the_call(store: Store, era: str) -> None:
    result = await ask(store, "fleet.cluster.reboot", {}, era=era)
    assert result.is_error
    assert "fleet.cluster.reboot" in text_of(result)
