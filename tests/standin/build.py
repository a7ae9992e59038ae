"""The stand-in libraries and the training job, compiled: `python -m tests.standin.build` prints where they are."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
DEFAULT_FOLDER = SOURCES / "build"
FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-Wl,-rpath,$ORIGIN")
LIBRARY = ("-fPIC", "-shared")
CUDART, NCCL, TRAIN = "libcudart.so.12", "libnccl.so.2", "train"


@dataclass(frozen=True)
class Standin:
    """What `build` made; the libraries lie beside the program that uses them."""

    folder: Path

    @property
    def libcudart(self) -> Path:
        return self.folder / CUDART

    @property
    def libnccl(self) -> Path:
        return self.folder / NCCL

    @property
    def train(self) -> Path:
        return self.folder / TRAIN


def why_not() -> str | None:
    """Why they cannot be built here, as the reason of a skip; None when they can."""
    if sys.platform != "linux":
        return "the stand-in libraries need Linux (futex, memfd, /proc)"
    if shutil.which("cc") is None:
        return "the stand-in libraries need a C compiler (cc); on Debian or Ubuntu: apt-get install gcc libc6-dev"
    return None


def build(into: Path = DEFAULT_FOLDER) -> Standin:
    """Compile into a folder below `into` that is named after the sources, unless it is there already."""
    made = Standin(into / _fingerprint())
    if made.folder.is_dir():
        return made
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into, prefix=".making-") as name:
        folder = Path(name) / "made"
        folder.mkdir()
        _compile_all(folder)
        try:
            folder.rename(made.folder)
        except OSError:
            if not made.folder.is_dir():  # else another process was first, with the same result
                raise
    return made


def _fingerprint() -> str:
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for path in sorted(SOURCES.iterdir()):
        if path.suffix in {".c", ".h", ".map"} or path.name == Path(__file__).name:
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _compile_all(folder: Path) -> None:
    cudart, nccl = f"-l:{CUDART}", f"-l:{NCCL}"
    _cc(folder / CUDART, "cudart.c", "gpu.c", *LIBRARY, *_library_flags(CUDART, "libcudart.map"))
    _cc(
        folder / NCCL,
        *("nccl.c", "comm.c", "exchange.c"),
        *LIBRARY,
        *_library_flags(NCCL, "libnccl.map"),
        f"-L{folder}",
        cudart,
    )
    _cc(
        folder / TRAIN,
        *("train.c", "options.c", "report.c", "rank.c", "faults.c", "calls.c"),
        f"-L{folder}",
        nccl,
        cudart,
    )


def _library_flags(soname: str, symbols: str) -> tuple[str, str]:
    return f"-Wl,-soname,{soname}", f"-Wl,--version-script={SOURCES / symbols}"


def _cc(output: Path, *arguments: str) -> None:
    sources = [str(SOURCES / argument) if argument.endswith(".c") else argument for argument in arguments]
    command = ["cc", *FLAGS, "-o", str(output), *sources]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{result.stderr}")


if __name__ == "__main__":
    print(build().folder)
