"""Memory that is kept between large arrays."""

from __future__ import annotations

import sys

import pytest
import torch

from decaf.devices import memory_kept


def new_pages(arrays: int = 8) -> int:
    """Pages that the system had to give while large arrays came and went."""
    import resource

    torch.ones(4 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(arrays):
        torch.ones(4 << 20)  # 16 MiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only glibc hands memory back at once")
def test_what_was_freed_is_used_again_while_memory_is_kept() -> None:
    before = new_pages()
    if before < 8:
        pytest.skip("this C library keeps memory by itself, or the system does not count pages")
    with memory_kept():
        assert new_pages() < before / 4
