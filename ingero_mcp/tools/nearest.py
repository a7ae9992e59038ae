"""Names that somebody may have meant, and how a name from outside is shown in a sentence."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ingero_mcp.cells import escaped

_MANY = 20


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The known names most like `name`, best first: those it is a part of, then those spelled alike."""
    folded: dict[str, str] = {}
    for candidate in known:
        folded.setdefault(_fold(candidate), candidate)
    wanted = _fold(name)
    parts = [key for key in folded if len(wanted) >= 3 and (wanted in key or (len(key) >= 3 and key in wanted))]
    alike = difflib.get_close_matches(wanted, folded, n=count, cutoff=0.6)
    ordered = sorted(parts, key=lambda key: abs(len(key) - len(wanted)))
    return [folded[key] for key in dict.fromkeys([*alike, *ordered])][:count]


def quoted(name: str, most: int = 80) -> str:
    """Text from outside, in quotes, on one line and not too long to read."""
    return f"'{escaped(name if len(name) <= most else name[: most - 3] + '...')}'"


def listed(names: Iterable[str]) -> str:
    """Names in a sentence; of many, the first and how many more."""
    every = [escaped(name) for name in names]
    more = f" and {len(every) - _MANY} more" if len(every) > _MANY else ""
    return ", ".join(every[:_MANY]) + more


def _fold(name: str) -> str:
    return "".join(char for char in name.casefold() if char.isalnum())
