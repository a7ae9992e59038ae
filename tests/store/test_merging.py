"""Merging is a union: nothing is lost, nothing is there twice, and order, stages and repetition make no difference."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingero_mcp import semconv
from ingero_mcp.cli.import_file import put
from ingero_mcp.events import STORED
from ingero_mcp.importers.imported import Names
from ingero_mcp.importers.registry import open_file
from ingero_mcp.sqlguard import check
from ingero_mcp.store import Store, open_store
from ingero_mcp.store.merging import Part, merge
from tests.importers.ingero_lookalike import START_NS, chain, event, write
from tests.store.test_migrations import ONE
from tests.views.rows import S, ask, call, rows

EVIDENCE = "ingero.chain.evidence"
CONTENT = [column.name for column in STORED if column.name != "event_seq"]
GIVEN = 1 << 51

Row = dict[str, Any]


def ours(path: Path, events: Sequence[Row], context: Sequence[Row] = ()) -> Path:
    """A database of ours; events without a number are numbered by the store."""
    with open_store(path) as store:
        if events:
            store.append(rows(events)).result(timeout=20)
        if context:
            store.append_context(rows(context)).result(timeout=20)
    return path


def part(path: Path, node: str = semconv.UNKNOWN) -> Part:
    """A file as a source, whatever it is."""
    with path.open("rb") as file:
        is_sqlite = file.read(6) == b"SQLite"
    return Part(path, open_file(path, Names(node=node)) if is_sqlite else None)


def merged(folder: Path, *sources: Path, node: str = semconv.UNKNOWN) -> Path:
    """The merge of the sources, in a folder of its own."""
    new = folder / f"merge-{len(list(folder.iterdir()))}"
    new.mkdir()
    merge([part(source, node) for source in sources], new / "out.duckdb")
    return new / "out.duckdb"


@dataclass(frozen=True)
class Held:
    """What a database holds, without the numbers of events: they may differ."""

    events: Counter[str]
    context: Counter[str]

    @classmethod
    def of(cls, path: Path) -> Held:
        with open_store(path, read_only=True) as store:
            events = list(read(store, "events"))
            ids = [f"{row['node_id']}:{row['event_seq']}" for row in events]
            assert len(ids) == len(set(ids)), "two events have one id"
            known = {identity: said(row) for identity, row in zip(ids, events, strict=True)}
            with store._engine.cursor() as cursor:
                found = cursor.sql("SELECT * FROM ingero_private.context").to_arrow_table().to_pylist()
        return cls(Counter(known.values()), Counter(cited(row, known) for row in found))


def read(store: Store, view: str) -> Iterator[Row]:
    yield from store.table(check(f"SELECT * FROM {view}"), max_bytes=1 << 24).to_pylist()


def number(row: Row) -> int | None:
    """The number that the producer gave; None where nobody did."""
    attributes = json.loads(row["attrs_json"] or "{}")
    if semconv.MERGED_SEQ in attributes:
        return int(attributes[semconv.MERGED_SEQ])
    counted = row["event_seq"] is not None and row["event_seq"] < GIVEN and "ingero.id" not in attributes
    return row["event_seq"] if counted else None


def said(row: Row) -> str:
    """What an event says, and the number from its producer."""
    attributes = json.loads(row["attrs_json"] or "{}")
    attributes.pop(semconv.MERGED_SEQ, None)
    content = {name: row[name] for name in CONTENT} | {"attrs_json": attributes, "number": number(row)}
    return json.dumps(content, sort_keys=True)


def cited(row: Row, events: dict[str, str]) -> str:
    """What a row of context says, with the events that it cites in place of their ids."""
    facts = json.loads(row["attrs_json"] or "{}")
    for fact in facts.get(EVIDENCE, []):
        fact["event_ids"] = [events.get(event_id, event_id) for event_id in fact["event_ids"]]
    name = (row["causal_chain_id"] or "").partition("~")[0]
    content = {name: row[name] for name in CONTENT} | {"attrs_json": facts, "causal_chain_id": name}
    return json.dumps(content, sort_keys=True)


def stall(chain_id: str, *event_ids: str) -> Row:
    """A chain as a watch keeps it."""
    facts = {"ingero.chain.updated_ns": "5", EVIDENCE: [{"statement": "s", "event_ids": list(event_ids)}]}
    attributes = json.dumps(facts, separators=(",", ":"))
    return {"metric_name": "causal_chain", "source": "chain", "causal_chain_id": chain_id, "cluster_id": "c",
            "node_id": "n1", "timestamp_ns": START_NS, "attrs_json": attributes}  # fmt: skip


def told(node: str, seq: int | None, value: float = 0.0, **columns: Any) -> Row:
    """An event as a producer sends it, or without a number."""
    return {"cluster_id": "c", "node_id": node, "event_seq": seq, "timestamp_ns": START_NS, "metric_name": "m",
            "value_double": value} | columns  # fmt: skip


NODES = st.sampled_from(["n1", "n2"])
AGENT_EVENTS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["n1", "n2", ""]), st.integers(0, 2)),
    max_size=6,
    unique_by=lambda drawn: drawn[:2],
)


@st.composite
def agents(draw: st.DrawFn) -> tuple[str, dict[str, list[Row]]]:
    """Rows of an agent's database, whose numbers and chains begin again in each."""
    version = draw(st.sampled_from(["0.8", "0.9", "0.10"]))
    drawn = draw(AGENT_EVENTS)
    if version == "0.8":
        events = [event(place, None, duration=duration) for place, (_, _, duration) in enumerate(drawn)]
        chains = [chain(f"chain-{at}", detected_at=START_NS + at) for at in draw(st.sets(st.integers(0, 2)))]
    else:
        events = [event(seq, node, duration=duration) for seq, node, duration in drawn]
        chains = [
            chain(f"{node}:slow", node=node, detected_at=START_NS + draw(st.integers(0, 2)))
            for node in draw(st.sets(NODES))
        ]
    return version, {"events": events, "causal_chains": chains}


@st.composite
def producers(draw: st.DrawFn) -> tuple[list[Row], list[Row]]:
    """Rows of a database of ours: events with numbers and without, and chains that cite them."""
    numbers = st.one_of(st.none(), st.integers(0, 2))
    drawn = draw(st.lists(st.tuples(NODES, numbers, st.integers(0, 2)), max_size=6, unique_by=_identity))
    events = [
        told(node, seq, value, attrs_json=draw(st.sampled_from([None, "{}", '{"a":1}']))) for node, seq, value in drawn
    ]
    ids = [f"{row['node_id']}:{row['event_seq']}" for row in events if row["event_seq"] is not None]
    chains = [stall(f"stall-{place}", event_id) for place, event_id in enumerate(ids[:2])]
    return events, chains


def _identity(drawn: tuple[str, int | None, int]) -> object:
    node, seq, _ = drawn
    return object() if seq is None else (node, seq)


SOURCE = st.one_of(agents(), producers())


def made(folder: Path, drawn: Any) -> Path:
    """The drawn file."""
    path = folder / f"source-{len(list(folder.iterdir()))}"
    if isinstance(drawn[0], str):
        return write(path, drawn[0], **drawn[1])
    return ours(path, *drawn)


def union(*sources: Path) -> Counter[str]:
    """What a merge must hold, worked out one by one: what has a number once, of the rest as much as any source has."""
    found: Counter[str] = Counter()
    for source in sources:
        whole = part(source)
        if whole.read is not None:
            events = [row for batch in whole.read.batches for row in batch.to_pylist()]
        else:
            with open_store(source, read_only=True) as store:
                events = list(read(store, "events"))
        found |= Counter(said(row) for row in events)
    return found


@settings(max_examples=8, deadline=None)
@given(SOURCE, SOURCE, SOURCE)
def test_order_and_stages_and_repetition_make_no_difference(one: Any, two: Any, three: Any) -> None:
    require_a_union(one, two, three)


@pytest.mark.nightly
@settings(max_examples=200, deadline=None)
@given(SOURCE, SOURCE, SOURCE)
def test_they_make_none_in_many_more_cases(one: Any, two: Any, three: Any) -> None:
    require_a_union(one, two, three)


def require_a_union(*drawn: Any) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        a, b, c = (made(folder, one) for one in drawn)
        ab = merged(folder, a, b)
        held = Held.of(merged(folder, ab, c))
        assert held.events == union(a, b, c)
        assert held == Held.of(merged(folder, a, merged(folder, c, b)))
        assert held == Held.of(merged(folder, c, b, a))
        assert Held.of(ab) == Held.of(merged(folder, ab, b, ab)) == Held.of(merged(folder, ab, a))
        only = merged(folder, a)
        alone = [Held.of(one) for one in (only, merged(folder, b), merged(folder, c))]
        assert held.context == alone[0].context | alone[1].context | alone[2].context
        assert Held.of(only) == Held.of(merged(folder, only, a)) == Held.of(merged(folder, only))


def test_a_database_of_ours_merged_with_itself_stays_what_it_is(tmp_path: Path) -> None:
    events = [told("n1", 1), told("n1", 2), told("n2", None), told("n2", None)]
    a = ours(tmp_path / "a", events, [stall("x", "n1:2")])
    assert Held.of(merged(tmp_path, a, Path(shutil.copyfile(a, tmp_path / "copy")))) == Held.of(a)


def test_a_counter_that_began_again_costs_no_event_and_evidence_follows_its_events(tmp_path: Path) -> None:
    first = ours(tmp_path / "a", [told("n1", seq, 1.0) for seq in range(3)], [stall("of-a", "n1:1", "n1:2")])
    again = ours(tmp_path / "b", [told("n1", seq, 2.0) for seq in range(2)], [stall("of-b", "n1:0", "n1:1", "n1:9")])
    whole = merged(tmp_path, first, again)
    for path in (whole, merged(tmp_path, merged(tmp_path, again, first), again)):
        with open_store(path, read_only=True) as store:
            values = dict(ask(store, "SELECT id, value_double FROM events"))
            assert sorted(values.values()) == [1.0, 1.0, 1.0, 2.0, 2.0]
            evidence = dict(ask(store, "SELECT chain_id, evidence FROM chains"))
            ids = {chain_id: json.loads(text)[0]["event_ids"] for chain_id, text in evidence.items()}
            assert [values[event_id] for event_id in ids["of-a"]] == [1.0, 1.0]
            assert [values[event_id] for event_id in ids["of-b"][:2]] == [2.0, 2.0]
            assert ids["of-b"][2] == "n1:9"  # whose event is not there
            moved = ask(store, "SELECT event_seq, attrs_json FROM events WHERE event_seq > 2")
            assert len(moved) == 2
            assert all(GIVEN <= seq < 2 * GIVEN for seq, _ in moved)
            before = {json.loads(attributes)[semconv.MERGED_SEQ] for _, attributes in moved}
            assert before == {0, 1}
    assert Held.of(whole).context == Held.of(first).context + Held.of(again).context


def test_what_servers_numbered_for_themselves_is_told_apart_by_what_it_says(tmp_path: Path) -> None:
    one = ours(tmp_path / "a", [told("n1", None, 1.0), told("n1", None, 2.0)])
    two = ours(tmp_path / "b", [told("n1", None, 2.0), told("n1", None, 3.0), told("n1", None, 3.0)])
    with open_store(merged(tmp_path, one, two), read_only=True) as store:
        assert [value for (value,) in ask(store, "SELECT value_double FROM events ORDER BY ALL")] == [
            1.0,
            2.0,
            3.0,
            3.0,
        ]
        assert ask(store, "SELECT count(DISTINCT id) FROM events") == [(4,)]


def test_two_old_files_under_one_name_keep_all_their_events_and_chains(tmp_path: Path) -> None:
    """Agents of 0.8 number events and chains from 1 in every file."""
    files = [
        write(tmp_path / name, "0.8", events=[event(number, None, duration=length) for number in range(1, 4)],
              causal_chains=[chain("chain-001", summary=name), chain("tail-medium-x", summary="both")])
        for name, length in (("a.db", 10), ("b.db", 20))
    ]  # fmt: skip
    whole = merged(tmp_path, *files, node="old")
    for path in (whole, merged(tmp_path, whole, files[1], node="old")):
        with open_store(path, read_only=True) as store:
            assert ask(store, "SELECT node_id, duration_ns, count(*) FROM events GROUP BY ALL ORDER BY ALL") == [
                ("old", 10, 3), ("old", 20, 3)
            ]  # fmt: skip
            assert ask(store, "SELECT count(DISTINCT id) FROM events") == [(6,)]
            chains = dict(ask(store, "SELECT summary, chain_id FROM chains"))
            assert chains["both"] == "old:tail-medium-x"
            assert sorted(name.partition("~")[0] for name in chains.values()) == [
                "old:chain-001", "old:chain-001", "old:tail-medium-x"
            ]  # fmt: skip
            assert len(set(chains.values())) == 3


def test_events_follow_their_chain_to_its_new_name(tmp_path: Path) -> None:
    sources = []
    for place in (1, 2):
        known = {"cluster_id": "c", "node_id": "n1", "metric_name": "causal_chain", "causal_chain_id": 'n1:"slow"',
                 "timestamp_ns": START_NS + place, "attrs_json": "{}"}  # fmt: skip
        attributes = json.dumps({"causal_chain_id": 'n1:"slow"', "z": place}, separators=(",", ":"))
        belongs = told("n1", place, place, causal_chain_id='n1:"slow"', attrs_json=attributes)
        sources.append(ours(tmp_path / f"s{place}", [belongs], [known]))
    whole = merged(tmp_path, *sources)
    for path in (whole, merged(tmp_path, sources[1], whole), merged(tmp_path, whole, sources[0])):
        with open_store(path, read_only=True) as store:
            found = ask(
                store,
                "SELECT value_double, detected_ns, causal_chain_id, attrs_json ->> '$.causal_chain_id' FROM "
                "events JOIN chains ON chain_id = causal_chain_id ORDER BY ALL",
            )
        assert [(value, detected - START_NS) for value, detected, _, _ in found] == [(1.0, 1), (2.0, 2)]
        assert all(name == attribute for _, _, name, attribute in found)


def test_of_a_stack_the_copy_with_names_is_kept(tmp_path: Path) -> None:
    bare = write(tmp_path / "a.db", stack_traces=[{"hash": 7, "ips": '["0x1","0x2"]', "frames": ""}])
    named = write(tmp_path / "b.db", stack_traces=[{"hash": 7, "ips": "", "frames": '[{"s":"f"},{"s":"g"}]'}])
    half = write(tmp_path / "c.db", stack_traces=[{"hash": 7, "ips": "", "frames": '[{"i":"0x1"},{"s":"g"}]'}])
    for order in ((bare, named, half), (half, named, bare), (named, merged(tmp_path, bare, half))):
        with open_store(merged(tmp_path, *order), read_only=True) as store:
            assert ask(store, "SELECT stack_id, frames FROM stacks") == [("0000000000000007", '["f","g"]')]


def test_another_stack_under_the_same_id_gets_one_of_its_own_and_events_follow(tmp_path: Path) -> None:
    def counted(name: str, node: str, *frames: str) -> Path:
        """A producer that counts its stacks."""
        attributes = json.dumps({"ingero.stack.frames": list(frames)}, separators=(",", ":"))
        stack = {"cluster_id": "c", "node_id": node, "metric_name": "stack", "stack_id": "1", "attrs_json": attributes}
        return ours(tmp_path / name, [told(node, 1, stack_id="1")], [stack])

    a, b = counted("a", "n1", "f", "0x2"), counted("b", "n2", "x", "y", "z")
    more = counted("more", "n1", "f", "g")
    ab = merged(tmp_path, a, b)
    for path in (
        merged(tmp_path, ab, more),
        merged(tmp_path, a, merged(tmp_path, more, b)),
        merged(tmp_path, b, more, ab),
    ):
        with open_store(path, read_only=True) as store:
            assert ask(store, "SELECT e.node_id, frames FROM events e JOIN stacks s USING (stack_id) ORDER BY ALL") == [
                ("n1", '["f","g"]'), ("n2", '["x","y","z"]')
            ]  # fmt: skip
            assert ask(store, "SELECT count(*) FROM events") == [(2,)]
            assert len(ask(store, "SELECT stack_id FROM stacks")) == 2
    assert Held.of(merged(tmp_path, ab, b)) == Held.of(ab)


def test_a_process_id_means_another_process_on_another_node(tmp_path: Path) -> None:
    files = [
        write(tmp_path / f"{node}.db", events=[event(1, node, pid=96)], system_snapshots=[snapshot()],
              process_names=[{"pid": 96, "name": f"jbd2-{node}", "seen_at": START_NS}],
              cgroup_metadata=[{"cgroup_id": 5, "cgroup_path": f"/{node}"}],
              event_aggregates=[{"bucket": START_NS, "source": 1, "op": 1, "pid": 96, "count": 3}])
        for node in ("n1", "n2")
    ]  # fmt: skip
    with open_store(merged(tmp_path, *files), read_only=True) as store:
        names = ask(store, "SELECT node_id, name FROM process_names ORDER BY ALL")
        assert names == ask(store, "SELECT node_id, process FROM events ORDER BY ALL")
        assert names == [("n1", "jbd2-n1"), ("n2", "jbd2-n2")]
        assert ask(store, "SELECT node_id, path FROM cgroups ORDER BY ALL") == [("n1", "/n1"), ("n2", "/n2")]
        for view in ("snapshots", "aggregates"):
            assert ask(store, f"SELECT node_id, count(*) FROM {view} GROUP BY ALL ORDER BY ALL") == [
                ("n1", 1),
                ("n2", 1),
            ]


def snapshot() -> Row:
    return {"timestamp": START_NS, "cpu_pct": 1.0, "mem_pct": 2.0, "mem_avail": 3, "swap_mb": 0, "load_avg": 0.5}


def test_what_one_file_knows_of_a_process_and_another_does_not_makes_no_second_event(tmp_path: Path) -> None:
    """A merge that an agent made has lost names of processes; the files it was made of have them."""
    poor = write(tmp_path / "a.db", events=[event(1)])
    rich = write(
        tmp_path / "b.db", events=[event(1)], process_names=[{"pid": 7, "name": "python", "seen_at": START_NS}]
    )
    with open_store(merged(tmp_path, poor, rich), read_only=True) as store:
        assert ask(store, "SELECT id, process FROM events") == [("n1:1", "python")]


def test_addresses_of_stacks_that_were_never_moved_to_a_table_are_kept(tmp_path: Path) -> None:
    old = write(tmp_path / "a.db", "0.8", events=[event(1, None, stack_ips='["0x1"]')])
    with open_store(merged(tmp_path, old, node="n1"), read_only=True) as store:
        [[attributes]] = ask(store, "SELECT attrs_json FROM events")
        assert json.loads(attributes)["ingero.stack_ips"] == '["0x1"]'


def test_empty_names_of_nodes_are_filled_in_and_cost_nothing(tmp_path: Path) -> None:
    files = [
        write(tmp_path / f"{place}.db", events=[event(1, "", id=":1", duration=place), event(2, "n1", duration=place)])
        for place in (1, 2)
    ]
    with open_store(merged(tmp_path, *files, node="given"), read_only=True) as store:
        counted = ask(store, "SELECT node_id, count(*), count(DISTINCT id) FROM events GROUP BY ALL ORDER BY ALL")
        assert counted == [("given", 2, 2), ("n1", 2, 2)]


def test_what_was_merged_from_a_file_is_recognised_when_the_file_is_imported(tmp_path: Path) -> None:
    file = write(tmp_path / "a.db", "0.8", events=[event(1, None)], causal_chains=[chain("x")])
    whole = merged(tmp_path, file)
    with open_store(whole) as store:
        assert put(open_file(file), store) == 0
        assert ask(store, "SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM chains)") == [(1, 1)]
        store.append(rows([told("n1", None)])).result(timeout=20)
        assert ask(store, "SELECT count(*), count(DISTINCT id) FROM events") == [(2, 2)]


def test_communicators_that_were_begun_anew_are_found_again_in_the_whole(tmp_path: Path) -> None:
    lives = [
        ours(
            tmp_path / f"life{life}",
            [call(rank, seq, life * 60 * S + seq * S + rank) for seq in range(5) for rank in (0, 1)],
        )
        for life in range(2)
    ]
    with open_store(merged(tmp_path, *reversed(lives)), read_only=True) as store:
        epochs = ask(store, "SELECT epoch, count(*), max(ranks_seen) FROM collectives GROUP BY ALL ORDER BY ALL")
        assert epochs == [(0, 10, 2), (1, 10, 2)]


def test_a_file_of_an_older_version_is_merged_as_it_is(tmp_path: Path) -> None:
    old = tmp_path / "old.duckdb"
    with duckdb.connect(str(old)) as connection:
        connection.execute(ONE)
        connection.register("incoming", rows([told("n1", 1)]))
        connection.execute("INSERT INTO ingero_private.event_rows SELECT * FROM incoming")
    before = old.read_bytes()
    assert Held.of(merged(tmp_path, old, ours(tmp_path / "b", [told("n1", 1), told("n1", 2)]))).events.total() == 2
    assert old.read_bytes() == before


def test_views_in_place_of_tables_are_not_read(tmp_path: Path) -> None:
    bad = ours(tmp_path / "bad.duckdb", [told("n1", 1)])
    secret = tmp_path / "secret.csv"
    secret.write_text("node_id\nsecret\n")
    columns = ", ".join(f"NULL::{column.type} AS {column.name}" for column in STORED if column.name != "node_id")
    with duckdb.connect(str(bad)) as connection:
        connection.execute("DROP TABLE ingero_private.event_rows CASCADE")
        connection.execute(f"CREATE VIEW ingero_private.event_rows AS SELECT {columns}, node_id FROM '{secret}'")
    assert Held.of(merged(tmp_path, bad, ours(tmp_path / "b", [told("n1", 2)]))).events.total() == 1
