"""Which kernel serves a problem on a GPU, and in what shape: plain arithmetic, no device needed."""

from typing import NamedTuple

ROW_LIMIT = 128
"""Largest hidden size of ``row.cu``: W has to fit the registers of one multiprocessor."""
PACK, WARPS = 8, 8  # as in split.cu
THREADS = 32 * WARPS


class Gpu(NamedTuple):
    """What a plan depends on: multiprocessors, compute capability, bytes of shared memory that a block may have."""

    multiprocessors: int
    capability: tuple[int, int]
    shared_bytes: int


class Launch(NamedTuple):
    """Size of a launch. ``together``: all blocks resident at once; ``cluster``: so many of them neighbours."""

    blocks: int
    threads: int
    shared_bytes: int = 0
    together: bool = False
    cluster: int = 1


class Part(NamedTuple):
    """One launch of ``split.cu``: for these members, ``groups`` groups of blocks each, of ``packs`` packs of rows."""

    members: slice
    groups: int
    packs: int
    macros: dict[str, int]
    launch: Launch


def row_plan(n: int, E: int, B: int, gpu: Gpu) -> tuple[dict[str, int], Launch]:
    """Macros and launch of ``row.cu``. Where multiprocessors are left over, several share a row (from Hopper on)."""
    rows, lanes, cluster = 2, 4, 1
    if n > 64 and gpu.capability >= (9, 0):
        if gpu.multiprocessors >= 4 * E * B:
            rows, lanes, cluster = 2, 8, 4
        elif gpu.multiprocessors >= 2 * E * B:
            rows, lanes, cluster = 4, 8, 2
    threads = -(-(-(-n // (cluster * rows)) * lanes) // 32) * 32
    alone = gpu.shared_bytes // 2 if cluster > 1 else 0  # more than it needs: no second block comes beside it
    macros = {"ROWS": rows, "LANES": lanes, "CLUSTER": cluster}
    return macros, Launch(E * B * cluster, threads, alone, cluster=cluster)


def split_limits(n: int, gpu: Gpu, tf32: bool) -> str | None:
    """None, or why ``split.cu`` cannot serve this hidden size."""
    if _tilings(n, gpu, tf32):
        return None
    return (
        f"hidden size {n} needs more than the {gpu.multiprocessors} multiprocessors with "
        f"{gpu.shared_bytes // 1024} KiB of shared memory that this GPU has"
    )


def split_plan(n: int, E: int, B: int, gpu: Gpu, tf32: bool) -> list[Part]:
    """Cut the members and their rows into launches whose blocks are all resident, one on a multiprocessor."""
    tilings = _tilings(n, gpu, tf32)
    packs = -(-B // PACK)
    # the least part of W for each block that still gives every pack a group of its own; else the largest
    tiles = next((t for t in tilings if E * packs * _group(n, t) <= gpu.multiprocessors), tilings[-1])
    slots = gpu.multiprocessors // _group(n, tiles)
    members = min(E, slots)
    each = -(-packs // (slots // members))
    groups = -(-packs // each)
    blocks, shared = groups * _group(n, tiles), _shared_bytes(n, tiles, tf32)
    macros = {"TILES": tiles, "TF32": int(tf32)}
    parts = [slice(e, min(e + members, E)) for e in range(0, E, members)]
    return [
        Part(e, groups, each, macros, Launch((e.stop - e.start) * blocks, THREADS, shared, together=True))
        for e in parts
    ]


def _tilings(n: int, gpu: Gpu, tf32: bool) -> list[int]:
    """How many tiles of 8 rows of W a block may have, by its registers, its shared memory, and the GPU's size."""
    return [
        tiles
        for tiles in (1, 2, 4)
        if tiles * _depth(n) <= 32
        and _shared_bytes(n, tiles, tf32) <= gpu.shared_bytes
        and _group(n, tiles) <= gpu.multiprocessors
    ]


def _depth(n: int) -> int:
    return -(-n // (8 * WARPS))


def _group(n: int, tiles: int) -> int:
    """Blocks that hold W together."""
    return -(-n // (8 * tiles))


def _shared_bytes(n: int, tiles: int, tf32: bool) -> int:
    """Sums and inputs of a step, the incoming states, and what TF32 leaves of W."""
    return 2 * WARPS * PACK * (8 * tiles + 2) * 8 + THREADS * (20 + 16 * _depth(n) * (1 if tf32 else 1 + tiles))
