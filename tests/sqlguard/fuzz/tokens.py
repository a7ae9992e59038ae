"""A statement as tokens, coarse enough to survive any statement: what is quoted is one token."""

from __future__ import annotations

import re

TOKEN = re.compile(
    r"""(?P<kept>[eE]?'(?:[^']|'')*' | "(?:[^"]|"")*" | \$(\w*)\$.*?\$\2\$ | /\*.*?\*/ | --[^\n]*(?:\n|$) | `[^`]*`)
      | (?P<gap>\s+) | (?P<word>\w+) | (?P<sign>->>|->|::|<=|>=|<>|!=|==|\|\||.)""",
    re.VERBOSE | re.DOTALL,
)


def tokens(sql: str) -> list[str]:
    """The pieces of `sql`; joined they are `sql` again."""
    return [found[0] for found in TOKEN.finditer(sql)]


def is_word(token: str) -> bool:
    """Whether it is a keyword, a name or a number without quotes."""
    return token.replace("_", "x").isalnum()


def is_string(token: str) -> bool:
    """Whether it is text in single quotes, without a prefix."""
    return len(token) >= 2 and token[0] == "'" == token[-1]
