"""Makes the packages of this checkout importable in its .venv, and puts `ingero` and `ingero-mcp` on its path.

Relative paths only, so the checkout may lie in a folder of any name and may be moved.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAUNCHER = """#!/bin/sh
exec "$(dirname "$(readlink -f "$0")")/python" -m ingero_mcp.cli.main {arguments}"$@"
"""


def main() -> None:
    """Write one .pth file and two launchers."""
    site = Path(sysconfig.get_path("purelib"))
    up = "/".join([".."] * len(site.relative_to(ROOT).parts))
    (site / "ingero.pth").write_text(f"{up}\n{up}/probes\n")
    for name, arguments in (("ingero", ""), ("ingero-mcp", "mcp ")):
        launcher = ROOT / ".venv" / "bin" / name
        launcher.write_text(LAUNCHER.format(arguments=arguments))
        launcher.chmod(0o755)


if __name__ == "__main__":
    main()
