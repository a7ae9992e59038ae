"""The package that people install: it holds every module and starts without this checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_wheel_holds_every_module_and_the_two_commands(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "tests", "*.egg-info", "build", "__pycache__"))
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*build, "--no-build-isolation", "-w", str(tmp_path), str(source)], check=True, timeout=120)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        held = set(opened.namelist())
        entry_points = next(opened.read(name).decode() for name in held if name.endswith("entry_points.txt"))
    for package in (source / "ingero_mcp", source / "probes" / "ingero_probes"):
        modules = {str(path.relative_to(package.parent)) for path in package.rglob("*.py")}
        assert modules <= held, modules - held
    assert "ingero_mcp/py.typed" in held
    assert "ingero = ingero_mcp.cli.main:main" in entry_points and "ingero-mcp = " in entry_points
