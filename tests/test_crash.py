"""kill -9 in the middle of ingestion: what was acknowledged is there, once, and nothing else."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from ingero_mcp.events import Resource, Sample
from ingero_mcp.otlp.encode import encode_samples
from ingero_mcp.sender import Sender
from ingero_mcp.sqlguard import check
from ingero_mcp.store import open_store
from tests.processes import ServerProcess

PRODUCERS = 4
ROWS_PER_BATCH = 20
START_NS = 1_796_000_000_000_000_000


class Producer:
    """Sends numbered batches, one after the other, until told to stop; repeats a batch until it is acknowledged."""

    def __init__(self, number: int, address: str) -> None:
        self.node_id = f"node-{number}"
        self.acknowledged = 0
        self.stop = threading.Event()
        self.progress = threading.Semaphore(0)
        self._address = address
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self.stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        resource = Resource({"ingero.cluster.id": "crash", "ingero.node.id": self.node_id})
        with Sender(self._address, patience_s=60) as sender:
            while not self.stop.is_set():
                batch = self.acknowledged
                samples = [
                    Sample("crash.test", START_NS + batch, batch, {"ingero.event.seq": batch * ROWS_PER_BATCH + row})
                    for row in range(ROWS_PER_BATCH)
                ]
                sender.send("metrics", encode_samples(resource, samples))
                self.acknowledged += 1
                self.progress.release()


def stored_batches(path: Path) -> dict[str, Counter[int]]:
    """Rows per batch and node, as the file holds them."""
    sql = "SELECT node_id, value_int, count(*) FROM events GROUP BY ALL"
    found: dict[str, Counter[int]] = {}
    with open_store(path, read_only=True) as store:
        for node_id, batch, rows in store.query(check(sql), limit=10**9).rows:
            assert isinstance(node_id, str) and isinstance(batch, int) and isinstance(rows, int)
            found.setdefault(node_id, Counter())[batch] = rows
    return found


@pytest.mark.parametrize("rounds", [20, pytest.param(100, marks=pytest.mark.nightly)])
def test_kill_nine_loses_and_doubles_nothing(tmp_path: Path, rounds: int) -> None:
    path = tmp_path / "events.duckdb"
    random = Random(9)
    server = ServerProcess.start(path)
    producers = [Producer(number, server.otlp_addr) for number in range(PRODUCERS)]
    for producer in producers:
        producer.start()
    try:
        for _ in range(rounds):
            for producer in producers:
                for _ in range(random.randrange(1, 40)):
                    assert producer.progress.acquire(timeout=60)
            server.kill()
            # Nothing is acknowledged any more; one batch per producer may be committed without its knowledge.
            acknowledged = {producer.node_id: producer.acknowledged for producer in producers}
            for node_id, batches in stored_batches(path).items():
                whole = acknowledged[node_id]
                assert set(range(whole)) <= set(batches) <= set(range(whole + 1))
                assert set(batches.values()) == {ROWS_PER_BATCH}
            server = ServerProcess.start(path, f"--otlp-addr={server.otlp_addr}")
    finally:
        for producer in producers:
            producer.join()
        server.terminate()
    expected = {producer.node_id: dict.fromkeys(range(producer.acknowledged), ROWS_PER_BATCH) for producer in producers}
    assert {node: dict(batches) for node, batches in stored_batches(path).items()} == expected
    print(f"{rounds} rounds, {sum(producer.acknowledged for producer in producers)} batches acknowledged")
