"""The server as a client meets it: tools, resources, prompt, instructions, and a store without anything in it."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from mcp import Client
from mcp.types import GetPromptResult, TextContent, TextResourceContents

from ingero_mcp import __version__
from ingero_mcp.events import COLUMNS
from ingero_mcp.mcp_server import build
from ingero_mcp.store import Store
from ingero_mcp.tools import TOOLS
from ingero_mcp.tools.guide import INSTRUCTIONS
from ingero_mcp.tools.tool import FleetTool
from ingero_mcp.views import VIEWS, relations
from tests.tools.fleet import ANALYSIS, COST, EXPLAIN, FLEET, HISTORY, OUTLIERS, ask, put, samples, text_of

pytestmark = pytest.mark.anyio


async def read(store: Store, uri: str, era: str) -> str:
    async with Client(build(store), mode=era) as client:
        (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    return content.text


async def test_every_tool_is_titled_described_read_only_and_has_both_schemas(store: Store, era: str) -> None:
    async with Client(build(store), mode=era) as client:
        tools = (await client.list_tools()).tools
    assert {tool.name for tool in tools} == {EXPLAIN, HISTORY, OUTLIERS, ANALYSIS, COST, FLEET}
    for tool in tools:
        assert tool.title
        assert tool.description
        assert len(tool.description) < 1200
        assert tool.annotations is not None
        hints = tool.annotations.model_dump(exclude={"title"})
        assert hints == {
            "read_only_hint": True,
            "destructive_hint": False,
            "idempotent_hint": True,
            "open_world_hint": False,
        }
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        assert tool.output_schema is not None
        jsonschema.Draft202012Validator.check_schema(tool.output_schema)
        assert "anyOf" not in json.dumps([tool.input_schema, tool.output_schema])
        assert len(json.dumps(tool.model_dump(mode="json", exclude_none=True))) < 8000


async def test_the_server_says_who_it_is_and_how_to_use_it(store: Store, era: str) -> None:
    async with Client(build(store), mode=era) as client:
        assert client.server_info.name == "ingero"
        assert client.server_info.version == __version__
        assert client.instructions == INSTRUCTIONS
    assert len(INSTRUCTIONS) < 1500
    assert all(name in INSTRUCTIONS for name in (HISTORY, OUTLIERS, ANALYSIS, "collectives", "chains", "stacks"))
    named = [name for name in relations() if re.search(rf"\b{name}\b", INSTRUCTIONS)]
    assert f"and {len(relations()) - len(named)} more" in INSTRUCTIONS


async def test_the_queries_in_the_instructions_run(store: Store) -> None:
    put(store, samples({"n1": [0.3], "n2": [0.9]}))
    queries = [line.partition(": ")[2] for line in INSTRUCTIONS.splitlines() if line.startswith("- ")]
    assert len(queries) == 4
    for sql in queries:
        result = await ask(store, ANALYSIS, {"sql": sql})
        assert not result.is_error, text_of(result)
        assert result.structured_content["row_count"] >= 1


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
async def test_the_example_of_a_tool_is_a_call_that_works(store: Store, tool: FleetTool) -> None:
    put(store, [{"cluster_id": "prod", "node_id": "gpu-node-03", "event_seq": 42, "rank": 5}])
    result = await ask(store, tool.name, dict(tool.example))
    assert not result.is_error, text_of(result)


async def test_every_relation_and_column_is_in_the_schema_resource(store: Store, era: str) -> None:
    text = await read(store, "fleet://schema", era)
    for column in COLUMNS:
        filled_by = f" [{', '.join(column.attributes)}]" if column.attributes else ""
        assert f"  {column.name} {column.type}: {column.doc}{filled_by}\n" in text
    for view in VIEWS:
        assert f"\n{view.name}: {view.doc}\n" in text
        for name, doc in view.columns:
            assert f"  {name}: {doc}\n" in text


async def test_the_clusters_resource_says_what_is_stored(store: Store, era: str) -> None:
    assert "the database has no events yet" in await read(store, "fleet://clusters", era)
    put(store, samples({"n1": [0.5], "n2": [0.5]}, cluster_id="prod"))
    assert "\nprod\t2\t2\t1796040000000000000\t1796040001000000000\n" in await read(store, "fleet://clusters", era)


async def test_only_what_works_is_listed(store: Store, era: str) -> None:
    async with Client(build(store), mode=era) as client:
        resources = (await client.list_resources()).resources
        assert [resource.uri for resource in resources] == ["fleet://schema", "fleet://clusters"]
        assert (await client.list_resource_templates()).resource_templates == []
        (prompt,) = (await client.list_prompts()).prompts
        assert (prompt.name, bool(prompt.description)) == ("investigate", True)
        assert [argument.name for argument in prompt.arguments or []] == ["question", "cluster_id", "window"]
        assert not any(argument.required for argument in prompt.arguments or [])


@pytest.mark.parametrize(
    "arguments", [None, {"cluster_id": "null", "window": ""}, {"window": "last 5m", "question": "Q?"}]
)
async def test_the_prompt_says_where_to_start(store: Store, arguments: dict[str, str] | None, era: str) -> None:
    async with Client(build(store), mode=era) as client:
        result = await client.get_prompt("investigate", arguments)
    assert isinstance(result, GetPromptResult)
    content = result.messages[0].content
    assert isinstance(content, TextContent)
    assert content.text.index(OUTLIERS) < content.text.index(HISTORY) < content.text.index(ANALYSIS)
    assert "'null'" not in content.text
    for value in (arguments or {}).values():
        assert value in ("null", "") or value in content.text


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
async def test_every_answer_fits_the_output_schema_whatever_is_in_the_store(
    store: Store, tool: FleetTool, era: str
) -> None:
    required = {"sql": "SELECT node_id, NULL AS a, rank FROM events"} if tool.name == ANALYSIS else {}
    for _ in range(2):
        async with Client(build(store), mode=era) as client:
            (listed,) = [each for each in (await client.list_tools()).tools if each.name == tool.name]
            result = await client.call_tool(tool.name, required)
        assert not result.is_error
        told: Any = result.structured_content
        jsonschema.validate(told, listed.output_schema or {})
        assert None not in told.values()
        if tool.name != EXPLAIN:
            assert told["row_count"] == len(told["rows"])
        put(store, samples({"n1": [0.5, float("nan")], "n2": [0.4]}))


async def test_nothing_is_logged_about_a_call_that_was_wrong(
    store: Store, era: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.WARNING):
        await ask(store, ANALYSIS, {"sql": "DROP TABLE events"}, era=era)
        await ask(store, HISTORY, {"wrong": 1}, era=era)
    assert [record.getMessage() for record in caplog.records] == []
    assert capfd.readouterr().out == ""


def test_the_claude_desktop_example_starts_our_server_with_names_that_client_takes() -> None:
    example = Path(__file__).parent.parent.parent / "examples" / "claude_desktop_config.json"
    servers = json.loads(example.read_text())["mcpServers"]
    assert servers == {"ingero": {"command": "ingero", "args": ["mcp", "--tool-names", "underscore"]}}
