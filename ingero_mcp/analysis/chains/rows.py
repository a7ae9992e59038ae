"""Chains as rows of context, as the view `chains` shows them: what a server keeps of those that it computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ingero_mcp.analysis.chains.chain import Chain
from ingero_mcp.batches import batch
from ingero_mcp.views import CHAIN


def context_batch(chains: Sequence[Chain], updated_ns: int) -> pa.RecordBatch:
    """The chains for `Store.append_context`, written at `updated_ns` (Unix ns).

    One that is written again, with the same id and start, takes the place of its earlier state in the view. When it was
    detected is not before its end, and what is written later knows no better: `detected_ns` is its end.
    """
    return batch(
        {
            "cluster_id": [one.cluster_id for one in chains],
            "node_id": [one.node_id for one in chains],
            "job_id": [one.job_id for one in chains],
            "timestamp_ns": [one.start_ns for one in chains],
            "source": "chain",
            "metric_name": CHAIN.metric_name,
            "causal_chain_id": [one.chain_id for one in chains],
            "attrs_json": [_attributes(one, updated_ns) for one in chains],
        },
        len(chains),
    )


def _attributes(one: Chain, updated_ns: int) -> str:
    facts: dict[str, Any] = {
        "kind": one.kind,
        "detected_ns": one.end_ns,
        "end_ns": one.end_ns,
        "severity": one.severity,
        "summary": one.summary,
        "root_cause": one.root_cause,
        "explanation": one.explanation,
        "recommendations": list(one.recommendations),
        "op": one.op,
        "p99_us": None if one.p99_ns is None else round(one.p99_ns / 1000),
        "p50_us": None if one.p50_ns is None else round(one.p50_ns / 1000),
        "tail_ratio": one.tail_ratio,
        "timeline": timeline_of(one),
        "evidence": evidence_of(one),
        "updated_ns": updated_ns,
    }
    return CHAIN.attributes(facts)


def timeline_of(one: Chain) -> list[dict[str, Any]]:
    """The timeline as an agent writes it: {layer, op, detail, dur_us}."""
    lines = []
    for line in one.timeline:
        took = {} if line.duration_ns is None else {"dur_us": round(line.duration_ns / 1000)}
        lines.append({"layer": line.layer, "op": line.op, "detail": line.detail} | took)
    return lines


def evidence_of(one: Chain) -> list[dict[str, Any]]:
    """The evidence: {statement, value, unit, event_ids}."""
    return [
        {
            "statement": fact.statement,
            "value": fact.value,
            "unit": fact.unit,
            "event_ids": [event_id for event_id in fact.event_ids if event_id],
        }
        for fact in one.evidence
    ]
