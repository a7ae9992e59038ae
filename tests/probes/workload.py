"""A process for the kernel tests: marks steps and calls CUDA from two threads. Run by its path: FOLDER GO."""

import ctypes
import sys
import threading
import time
from pathlib import Path

STEPS, PER_STEP = 5, 23


def allocate(cudart: ctypes.CDLL) -> None:
    block = ctypes.c_void_p()
    for _ in range(PER_STEP):
        assert cudart.cudaMalloc(ctypes.byref(block), ctypes.c_size_t(4096)) == 0
        assert cudart.cudaFree(block) == 0


def main(folder: Path, go: Path) -> None:
    cudart = ctypes.CDLL(str(folder / "libcudart.so.12"))
    marker = ctypes.CDLL(str(folder / "libingero_marker.so"))
    print("ready", flush=True)
    while not go.exists():
        time.sleep(0.01)
    for step in range(100, 100 + STEPS):
        marker.ingero_step(ctypes.c_uint64(step))
        other = threading.Thread(target=allocate, args=(cudart,))
        other.start()
        allocate(cudart)
        other.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
