"""Mutations of how a statement is written: white space, comments, case and quotes, seen and unseen."""

from __future__ import annotations

from random import Random

from tests.sqlguard.fuzz.tokens import is_string, is_word, tokens

PLAIN_GAPS = (" ", "\n", "\t ", " /* a gap */ ", " -- a gap\n", "/**/ ", " /* /* nested */ */ ")
"""What every parser takes for white space."""

_ZERO_WIDTH = "\u200b\u2060\ufeff"
_UNSEEN = "\u200c\u200d\u00a0\u3000\u2000\u2028\u2029\u202e\u1680\u180e\u00ad\u0085\x0b\x0c\x1c\x1f\x00\r"
_ODD_GAPS = (
    "",
    "/* ' */",
    '/* " */',
    "/* -- */",
    "-- /*\n",
    "--\r",
    "--\u2028",
    "/*/**/*/",
    "/*! */",
    "{# #}",
    "# \n",
    "\\\n",
    "/* $$ */",
)
# Letters that some way of ignoring case takes for a letter of ASCII.
_LOOK_ALIKE = {"k": "\u212a", "s": "\u017f", "i": "\u0131", "a": "\u0430", "e": "\u0435", "K": "\u212a", "I": "\u0130"}


def gaps(rng: Random, sql: str) -> str:
    """Other white space and comments where there was white space."""
    share = rng.random()
    return "".join(_gap(rng) if token.isspace() and rng.random() < share else token for token in tokens(sql))


def _gap(rng: Random) -> str:
    kind = rng.random()
    if kind < 0.5:
        return rng.choice(PLAIN_GAPS)
    return _unseen(rng) if kind < 0.8 else rng.choice(_ODD_GAPS)


def _unseen(rng: Random) -> str:
    return rng.choice(rng.choice((_ZERO_WIDTH, _UNSEEN)))


def one_gap(rng: Random, sql: str) -> str:
    """Every gap becomes the same unseen character: what one parser reads as one word, another reads as a statement."""
    gap, start = _unseen(rng), rng.random()
    parts = tokens(sql)
    first = int(start * len(parts))
    return "".join(gap if token.isspace() and place >= first else token for place, token in enumerate(parts))


def extra_gap(rng: Random, sql: str) -> str:
    """A gap where there was none."""
    place = rng.randint(0, len(sql))
    return sql[:place] + _gap(rng) + sql[place:]


def case(rng: Random, sql: str) -> str:
    """Words in another case."""
    turns = (str.upper, str.lower, str.title, str.swapcase)
    share = rng.random()
    return "".join(
        rng.choice(turns)(token) if is_word(token) and rng.random() < share else token for token in tokens(sql)
    )


def look_alike(rng: Random, sql: str) -> str:
    """A letter becomes one that looks like it, or folds to it."""
    places = [place for place, char in enumerate(sql) if char in _LOOK_ALIKE]
    if not places:
        return sql
    place = rng.choice(places)
    return sql[:place] + _LOOK_ALIKE[sql[place]] + sql[place + 1 :]


def quoted(rng: Random, sql: str) -> str:
    """One word or text with other quotes around it."""
    parts = tokens(sql)
    places = [place for place, token in enumerate(parts) if is_word(token) or is_string(token) or token[0] == '"']
    if not places:
        return sql
    place = rng.choice(places)
    token = parts[place]
    inside = token if is_word(token) else token[1:-1]
    unseen = "".join(f"\\u{ord(char):04x}" for char in inside)
    forms = (
        *(f'"{inside}"', f"`{inside}`", f"'{inside}'", f"$${inside}$$", f"$q${inside}$q$", f"E'{inside}'"),
        *(f"E'{unseen}'", f"E'{inside}\\u200b'", f"E'{inside}\\''", f"$1a${inside}$1a$", f"x'{inside}'", inside),
        *(f"U&'{inside}'", f"[{inside}]", f"'{inside}' '{inside}'", f"{inside}$$", f"{inside}'", f'"{inside}'),
    )
    parts[place] = rng.choice(forms)
    return "".join(parts)


def hidden(rng: Random, sql: str) -> str:
    """Part of the statement becomes a comment or a text, for a parser that sees the other end of it elsewhere."""
    start, stop = sorted((rng.randint(0, len(sql)), rng.randint(0, len(sql))))
    opens, closes = rng.choice((("/*", "*/"), ("--", "\n"), ("$$", "$$"), ("$1$", "$1$"), ("'", "'"), ("/*/*", "*/")))
    return sql[:start] + opens + sql[start:stop] + closes + sql[stop:]
