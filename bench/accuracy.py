"""`make accuracy`: how often explain_stall is right about generated incidents, beside two simple rules.

    python -m bench.accuracy [--quick] [--seeds A:B] [--family F1,F5] [--severity 3,5] [--view probe] [--json] [--write]

Every case goes into a fresh store in memory and is asked about through the tool, with nothing but its events. Seeds
below 1,000 are for tuning; without --seeds the held-out ones from 10,000 on are used.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from bench.accuracy_report import document, rows_of, table
from bench.baselines import RULES, named
from bench.beside_report import beside as beside_tables
from bench.score import Answer
from bench.scored import Scored
from bench.suite import HELD_OUT, SEVERITIES, Spec, beside, suite
from ingero_mcp.store import Store, open_store
from ingero_mcp.synth.scenario import FAMILIES, VIEWS, generate
from ingero_mcp.tools.call import Call
from ingero_mcp.tools.explain_stall import ExplainStall, explain_stall

_DOCUMENT = Path(__file__).parent.parent / "docs" / "accuracy.md"
_PROCESSES = 2
_HOUR_NS = 3.6e12


def ask(store: Store) -> Answer:
    """The product's own answer about what is in the store. The one place that knows how to ask it."""
    said: dict[str, Any] = explain_stall(Call(store, None), ExplainStall()).structured
    return Answer(
        said["verdict"],
        tuple(culprit["rank"] for culprit in said["culprits"]),
        tuple((group["kind"], group["id"], tuple(group["ranks"])) for group in said["culprit_groups"]),
        (said["cause"], *(other["cause"] for other in said["alternatives"])),
        _lost_ns(said),
        bool((said.get("cost") or {}).get("is_upper_bound")),
        tuple(_other(one) for one in said["other_findings"] if one.get("job_id") == said.get("job_id")),
    )


def _other(said: dict[str, Any]) -> Answer:
    groups = tuple((group["kind"], group["id"], tuple(group["ranks"])) for group in said["culprit_groups"])
    return Answer(said["verdict"], tuple(said["culprits"]), groups, (said["cause"],))


def _lost_ns(said: dict[str, Any]) -> float | None:
    cost = said.get("cost")
    return cost["gpu_hours"] / cost["gpus"] * _HOUR_NS if cost else None


def judge(spec: Spec) -> Scored:
    """Generate one case and ask everybody."""
    case = generate(spec.family, spec.seed, spec.severity, spec.view)
    batches = list(case.batches())
    with open_store(None) as store:
        for future in [store.append(batch) for batch in batches]:
            future.result()
        began, crash = time.perf_counter(), ""
        try:
            answers = {"explain_stall": ask(store)}
        except Exception:
            # No answer is a wrong answer, and must not hide those about all other cases.
            answers, crash = {"explain_stall": Answer("crash")}, traceback.format_exc()
        seconds = time.perf_counter() - began
    answers |= {name: Answer("straggler", named(rule, batches)) for name, rule in RULES.items()}
    return Scored(spec, case.truth, answers, seconds, crash)


def main(arguments: Sequence[str] | None = None) -> None:
    """Judge the suite and print the tables."""
    given = _arguments(arguments)
    specs = suite(given.seeds, given.family or list(FAMILIES), given.severity, given.view)
    specs += [] if given.family else beside(given.seeds, given.severity, given.view)
    with ProcessPoolExecutor(_PROCESSES) as pool:
        scored = list(_progress(pool.map(judge, specs, chunksize=4), len(specs)))
    for one in [one for one in scored if one.crash][:3]:
        print(f"crashed on {one.spec}:\n{one.crash}", file=sys.stderr)
    rows = rows_of(scored)
    if given.json:
        print(json.dumps(rows, indent=1))
    else:
        print(table(rows))
        print("\n".join(line for one in beside_tables(scored) for line in one.text))
    if given.write:
        _DOCUMENT.write_text(document(scored, given.seeds))
        print(f"wrote {_DOCUMENT.name}", file=sys.stderr)


def _progress(results: Iterable[Scored], total: int) -> Iterable[Scored]:
    for number, result in enumerate(results, 1):
        if sys.stderr.isatty():
            print(f"\r{number} of {total}", end="" if number < total else "\n", file=sys.stderr)
        yield result


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.accuracy")
    parser.add_argument("--quick", action="store_true", help="one seed and three severities: about a minute")
    parser.add_argument("--seeds", type=_range, help="FIRST:END, default the held-out ones from 10000 on")
    parser.add_argument("--family", type=_list, help="some of F1 to F18, U1, M1, N1, ...")
    parser.add_argument("--severity", type=_numbers, help="multiples of the job's spread")
    parser.add_argument("--view", type=_list, default=list(VIEWS), help="probe, kernel, optrace")
    parser.add_argument("--json", action="store_true", help="the rows of the tables as JSON")
    parser.add_argument("--write", action="store_true", help="write docs/accuracy.md")
    given = parser.parse_args(arguments)
    given.seeds = given.seeds or range(HELD_OUT, HELD_OUT + (1 if given.quick else 8))
    given.severity = given.severity or ((1.0, 3.0, 10.0) if given.quick else SEVERITIES)
    return given


def _range(text: str) -> range:
    first, _, end = text.partition(":")
    return range(int(first), int(end or int(first) + 1))


def _list(text: str) -> list[str]:
    return text.split(",")


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


if __name__ == "__main__":
    main()
