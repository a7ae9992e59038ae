"""Whose dump it is: the rank, and the host if somebody says it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ingero_mcp.importers.flight_recorder.fields import number, words
from ingero_mcp.importers.flight_recorder.groups import MAX_RANK, Groups

_MAX_HOST: Final = 255
_MAX_TEXT: Final = 300
_NUMBER: Final = re.compile(r"[0-9]+")
_SUFFIX: Final = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,9}$")
# nccl_trace_rank_<host>_<rank>: the host is what lies between the prefix and the rank.
_PREFIX: Final = re.compile(r"(?<![A-Za-z])rank[_-]")


def rank_of(dump: Mapping[str, Any], name: str, groups: Groups) -> tuple[int | None, str]:
    """The global rank of a dump, and what is odd about it.

    The dump may say its rank; else it is the last number in the name of the dump; else the one rank that is in all
    groups, for a process lists only groups of its own. A number that cannot be a rank of the job is no rank, if the
    groups tell better.
    """
    said = number(dump.get("rank", dump.get("global_rank")), MAX_RANK)
    if said is None:
        said = _last_number(name)
    world, common = groups.world(), groups.common_ranks()
    only = next(iter(common)) if common is not None and len(common) == 1 else None
    rank = said
    if only is not None and (said is None or (world and said not in world) or said != only):
        rank = only
    if rank is None:
        return None, ""
    if rank != said is not None:
        return rank, "dumps are named after a number that is not the rank: the rank is the one in all groups"
    if world and rank not in world:
        return rank, "dumps are of a rank that is not in the default group"
    if common is not None and rank not in common:
        return rank, "dumps are of a rank that is not in all of their groups; is the number in the name the rank?"
    return rank, ""


def host_of(dump: Mapping[str, Any], name: str) -> str | None:
    """The host, from the dump or from the name; None if neither says it."""
    for key in ("host_name", "hostname"):
        host = words(dump.get(key), _MAX_HOST)
        if _is_name(host):
            return host
    stem = _stem(name)
    numbers = list(_NUMBER.finditer(stem))
    before = stem[: numbers[-1].start()] if numbers else ""
    prefix = _PREFIX.search(before)
    if prefix is None or not before.endswith(("_", "-", ".")):
        return None
    host = before[prefix.end() : -1]
    return host if any(letter.isalpha() for letter in host) and _is_name(host) else None


def _last_number(name: str) -> int | None:
    digits = _NUMBER.findall(_stem(name))
    return number(digits[-1], MAX_RANK) if digits else None


def _stem(name: str) -> str:
    return _SUFFIX.sub("", words(name, _MAX_TEXT))


def _is_name(text: str) -> bool:
    # A colon divides node and number in the id of an event.
    return 0 < len(text) <= _MAX_HOST and text.isprintable() and ":" not in text
