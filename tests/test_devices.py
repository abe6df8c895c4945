"""Memory that is kept between large arrays, shared by threads, and handed back."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PAGES = """
import resource, torch
from decaf.devices import memory_kept
def new_pages():
    for arrays in (16, 16):  # the first ones are to settle in
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(arrays):
            torch.ones(12 << 20)  # 48 MiB: glibc learns by itself to keep what is below 32
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
plain = new_pages()
with memory_kept():
    print(plain, new_pages())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only glibc hands memory back at once")
def test_what_was_freed_is_used_again_while_memory_is_kept() -> None:
    """In a process of its own: what other tests left on the heap decides where an array still fits."""
    told = subprocess.run([sys.executable, "-c", PAGES], capture_output=True, text=True, check=True)
    plain, kept = (int(word) for word in told.stdout.split())
    if plain < 8:
        pytest.skip("this C library keeps memory by itself, or the system does not count pages")
    assert kept < plain / 4


TRIMMED = """
import ctypes
from decaf.devices import hand_back
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
taken = [libc.malloc(60_000) for _ in range(2000)]
for one in taken:
    ctypes.memset(one, 1, 60_000)
for one in taken[:-1]:  # the last is used, and behind it nothing is free
    libc.free(ctypes.c_void_p(one))
before = resident()
hand_back()
print(before - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="no other C library keeps it")
def test_what_was_freed_is_handed_back() -> None:
    told = subprocess.run([sys.executable, "-c", TRIMMED], capture_output=True, text=True, check=True)
    assert int(told.stdout) > 50_000_000


HEAPS = """
import ctypes, sys, tempfile, threading
from decaf.devices import few_heaps
if sys.argv[1] == "few":
    few_heaps()
libc, all_there = ctypes.CDLL(None), threading.Barrier(12)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
def take():
    all_there.wait()
    for _ in range(200):
        libc.malloc(100)
    all_there.wait()
threads = [threading.Thread(target=take) for _ in range(12)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
with tempfile.NamedTemporaryFile() as told:
    file = libc.fopen(told.name.encode(), b"w")
    libc.malloc_info(0, ctypes.c_void_p(file))
    libc.fclose(ctypes.c_void_p(file))
    print(told.read().count(b"<heap nr="))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only glibc has several heaps")
def test_threads_share_few_heaps() -> None:
    heaps = {}
    for how in ("few", "many"):
        told = subprocess.run([sys.executable, "-c", HEAPS, how], capture_output=True, text=True, check=False)
        if told.returncode:
            pytest.skip(f"this C library does not tell of its heaps: {told.stderr.splitlines()[-1]}")
        heaps[how] = int(told.stdout)
    assert heaps["few"] <= 2 < heaps["many"]
