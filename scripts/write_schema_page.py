"""Writes docs/schema.md from the definitions that the program itself uses; `make docs`."""

from __future__ import annotations

from pathlib import Path

from ingero_mcp.tools.guide import schema_text

PAGE = Path(__file__).resolve().parent.parent / "docs" / "schema.md"


def main() -> None:
    """Replace the page."""
    PAGE.write_text(
        f"# Schema\n\nWhat SQL may read; the resource `fleet://schema` says the same.\n\n```\n{schema_text()}```\n"
    )


if __name__ == "__main__":
    main()
