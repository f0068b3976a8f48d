"""Counter-based noise: every random number is a pure function of a seed and a position.

The generator is Philox 4x32 with 7 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011),
written in integer tensor operations, so that the same seed gives the same numbers on every device, inside and outside
`torch.compile`, in a recomputed forward pass, and for any amount of padding behind the last position.

A position is `(k, lead, i, j)`: the last axis is `j`, the one before it `i`, the first of three or more axes is the
particle axis `k`, and all axes in between are flattened into `lead`. Making the last axis, the query axis or the
particle axis longer therefore never changes the numbers that were already there.

Size letters: K particles, L flattened lead, I rows, J columns.
"""

import math
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["Backend", "exponential", "fold_seed", "fresh_seed", "gumbel", "normal", "set_backend", "uniform"]

Backend = Callable[[Tensor, tuple[int, int, int, int], int, int, torch.dtype], Tensor | None]
"""From a seed on the CPU, sizes (K, L, I, J), a stream, a first row and a dtype to the numbers of `uniform`, bit for
bit; None where it cannot."""

# Philox's multipliers minus 2**32: the product with a 32-bit word then stays inside int64 (see `_philox`).
_MULTIPLIERS = (0xD2511F53 - 2**32, 0xCD9E8D57 - 2**32)
_KEY_INCREMENTS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 7
_WORD = 0xFFFFFFFF
_SEED_BOUND = 2**62
# Philox blocks that are worked on at once outside a compiler: enough to pay for the calls, few enough for the cache.
_CHUNK = 32768
# The particle number and the stream number share one 32-bit counter word.
_MAX_PARTICLES = 2**20
_backend: Backend | None = None


def set_backend(backend: Backend | None) -> None:
    """Let eager code on the CPU make its numbers elsewhere, e.g. in C++; None: in torch, as compiled code does."""
    global _backend
    _backend = backend


def fresh_seed(device: torch.device | str = "cpu") -> Tensor:
    """Draw a seed from torch's own generator, so that `torch.manual_seed` governs all noise.

    It is made different on every rank: launchers and trainers give all of them one torch seed, and data-parallel
    training would then see the same noise everywhere. The first rank's is that of a single process. Ranks that must
    agree on a draw, as in tensor parallelism, hand one seed to all of them.

    Returns:
        An int64 scalar on `device`.
    """
    seed = torch.randint(0, _SEED_BOUND, (), device=device, dtype=torch.int64)
    rank = dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
    return fold_seed(seed, rank) if rank > 0 else seed


def fold_seed(seed: Tensor, tag: int) -> Tensor:
    """Derive an independent seed from `seed` and a small number, e.g. the position of a module in a model.

    Args:
        seed: () int64.
        tag: Any non-negative integer below 2**32.

    Returns:
        An int64 scalar seed.
    """
    zero = torch.zeros_like(seed)
    words = _philox(seed, (zero + tag, zero, zero, zero + _WORD))
    return ((words[0] << 30) ^ words[1]) & (_SEED_BOUND - 1)


def uniform(
    seed: Tensor, shape: Sequence[int], *, stream: int = 0, first_row: int = 0, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Uniform numbers strictly inside (0, 1).

    Args:
        seed: () int64; its device is the device of the result.
        shape: Shape of the result; see the module's text for how axes become counters.
        stream: Number of the noise stream; different streams of one seed are independent.
        first_row: What the axis before the last one counts from, so that rows can be made again a few at a time.
        dtype: float32 (23 random bits) or float64 (52 random bits).

    Returns:
        Tensor of `shape`. The extremes are 2**-24 and 1 - 2**-24 in float32, so that log(u) and log(-log(u)) are
        finite.

    Example:
        >>> u = uniform(torch.tensor(7), (2, 3))
        >>> bool(torch.equal(u, uniform(torch.tensor(7), (2, 5))[:, :3]))
        True
    """
    if dtype not in (torch.float32, torch.float64):
        raise TypeError(f"uniform noise is made in float32 or float64, got {dtype}; cast the result instead")
    if not isinstance(seed, Tensor) or seed.dtype != torch.int64:
        raise TypeError(f"a seed is an int64 tensor, e.g. torch.tensor(3), got {seed!r}")
    sizes = _sizes(shape)
    if not torch.compiler.is_compiling() and _backend is not None and _is_plain(seed) and seed.is_cpu:
        made = _backend(seed, sizes, stream, first_row, dtype)
        if made is not None:
            return made.view(tuple(shape))
    words_per_number = 1 if dtype == torch.float32 else 2
    columns = sizes[-1]
    row_counters, blocks = _counters(seed, sizes, numbers_per_block=4 // words_per_number, stream=stream)
    row_counters = (row_counters[0] + first_row, *row_counters[1:])
    num_rows = row_counters[0].shape[0]
    block = _positions(seed, blocks)  # (blocks,)
    if torch.compiler.is_compiling() or not _is_plain(seed):
        numbers = _to_unit_interval(_philox(seed, (block, *row_counters)), dtype)  # a compiler fuses the rounds
    else:
        numbers = torch.empty((num_rows, blocks, 4 // words_per_number), device=seed.device, dtype=dtype)
        rows_per_chunk = max(1, _CHUNK // max(1, blocks))
        for start in range(0, num_rows, rows_per_chunk):
            rows = slice(start, start + rows_per_chunk)
            words = _philox_in_place(seed, (block, *(word[rows] for word in row_counters)))
            _write_unit_interval(words, numbers[rows])
    return numbers.flatten(1)[:, :columns].reshape(tuple(shape))


def exponential(
    seed: Tensor, shape: Sequence[int], *, stream: int = 0, first_row: int = 0, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Numbers with density exp(-x), always positive. Arguments as for `uniform`."""
    return uniform(seed, shape, stream=stream, first_row=first_row, dtype=dtype).log_().neg_()


def gumbel(
    seed: Tensor, shape: Sequence[int], *, stream: int = 0, first_row: int = 0, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Standard Gumbel numbers, -log(E) with E exponential. Arguments as for `uniform`."""
    return exponential(seed, shape, stream=stream, first_row=first_row, dtype=dtype).log_().neg_()


def normal(
    seed: Tensor, shape: Sequence[int], *, stream: int = 0, first_row: int = 0, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Standard normal numbers by inversion of the distribution function. Arguments as for `uniform`."""
    centred = uniform(seed, shape, stream=stream, first_row=first_row, dtype=dtype).mul_(2.0).sub_(1.0)
    return centred.erfinv_().mul_(math.sqrt(2.0))


def _is_plain(seed: Tensor) -> bool:
    """Whether it holds one number that can be read: no fake tensor, and no seeds of many examples under `vmap`."""
    return type(seed) is Tensor and not seed.is_meta and not torch._C._functorch.is_functorch_wrapped_tensor(seed)


def _sizes(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """K, L, I and J of a shape; axes that it has not have size one."""
    shape = tuple(shape)
    columns = shape[-1] if len(shape) >= 1 else 1
    rows = shape[-2] if len(shape) >= 2 else 1
    particles = shape[0] if len(shape) >= 3 else 1
    lead = math.prod(shape[1:-2]) if len(shape) >= 4 else 1
    if particles > _MAX_PARTICLES:
        raise ValueError(f"at most {_MAX_PARTICLES} particles can be drawn at once, got {particles}")
    return particles, lead, rows, columns


def _counters(
    seed: Tensor, sizes: tuple[int, int, int, int], *, numbers_per_block: int, stream: int
) -> tuple[tuple[Tensor, Tensor, Tensor], int]:
    """Counter words `i`, `lead` and `k` of all rows, each (K * L * I, 1), and the number of Philox blocks in a row."""
    particles, lead, rows, columns = sizes
    position = _positions(seed, particles * lead * rows).unsqueeze(-1)
    row = position % max(1, rows)
    lead_number = (position // max(1, rows)) % max(1, lead)
    particle = position // max(1, rows * lead) + stream * _MAX_PARTICLES
    return (row, lead_number, particle), (columns + numbers_per_block - 1) // numbers_per_block


def _positions(seed: Tensor, size: int) -> Tensor:
    """0, 1, ..., size - 1 as data that depends on the seed's tensor.

    torch.compile treats a bare `arange` as an index expression and multiplies it in 32 bits, which overflows here.
    """
    return torch.arange(size, device=seed.device, dtype=torch.int64) + (seed & 0)


def _to_unit_interval(words: tuple[Tensor, Tensor, Tensor, Tensor], dtype: torch.dtype) -> Tensor:
    """Numbers strictly inside (0, 1) from four 32-bit words: four of them in float32, two in float64 (last axis)."""
    if dtype == torch.float32:
        numbers = torch.stack([(word >> 9).to(dtype) for word in words], dim=-1)
        return (numbers + 0.5) * 2.0**-23
    numbers = torch.stack([(words[0] << 20) | (words[1] >> 12), (words[2] << 20) | (words[3] >> 12)], dim=-1)
    return (numbers.to(dtype) + 0.5) * 2.0**-52


def _write_unit_interval(words: tuple[Tensor, Tensor, Tensor, Tensor], numbers: Tensor) -> None:
    """Writes what `_to_unit_interval` gives; the words are used up."""
    if numbers.dtype == torch.float64:
        numbers.copy_(_to_unit_interval(words, torch.float64))
        return
    for place, word in enumerate(words):
        numbers[..., place] = word.bitwise_right_shift_(9)
    numbers.add_(0.5).mul_(2.0**-23)


def _philox_in_place(seed: Tensor, counters: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same words as `_philox`, with fewer operations and no new memory in a round.

    Eager products wrap around as unsigned ones would. Their upper halves stay where they are until a word is multiplied
    or handed back.
    """
    word0, word1, word2, word3 = (word.clone() for word in torch.broadcast_tensors(*counters))
    product0, product1, factor = (torch.empty_like(word0) for _ in range(3))
    key0, key1 = seed & _WORD, (seed >> 32) & _WORD
    for round_number in range(_ROUNDS):
        if round_number > 0:
            key0 = (key0 + _KEY_INCREMENTS[0]) & _WORD
            key1 = (key1 + _KEY_INCREMENTS[1]) & _WORD
        torch.mul(torch.bitwise_and(word0, _WORD, out=factor), _MULTIPLIERS[0] + 2**32, out=product0)
        torch.mul(torch.bitwise_and(word2, _WORD, out=factor), _MULTIPLIERS[1] + 2**32, out=product1)
        torch.bitwise_right_shift(product1, 32, out=word0).bitwise_xor_(word1).bitwise_xor_(key0)
        torch.bitwise_right_shift(product0, 32, out=word2).bitwise_xor_(word3).bitwise_xor_(key1)
        word1, product1 = product1, word1
        word3, product0 = product0, word3
    words = (word0, word1, word2, word3)
    for word in words:
        word.bitwise_and_(_WORD)
    return words


def _philox(seed: Tensor, counters: tuple[Tensor, Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four 32-bit random words, held in int64 tensors, for each counter.

    The product of a word and a multiplier can pass 2**63, and signed overflow is undefined in the C++ that
    `torch.compile` writes (it was seen to give other numbers than eager mode). With m the multiplier minus 2**32 the
    product w * m stays below 2**62 in size, and w * (m + 2**32) has the same lower word and an upper word larger by
    w.
    """
    word0, word1, word2, word3 = counters
    key0, key1 = seed & _WORD, (seed >> 32) & _WORD
    for round_number in range(_ROUNDS):
        if round_number > 0:
            key0 = (key0 + _KEY_INCREMENTS[0]) & _WORD
            key1 = (key1 + _KEY_INCREMENTS[1]) & _WORD
        product0 = word0 * _MULTIPLIERS[0]
        product1 = word2 * _MULTIPLIERS[1]
        word0, word1, word2, word3 = (
            (((product1 >> 32) + word2) & _WORD) ^ word1 ^ key0,
            product1 & _WORD,
            (((product0 >> 32) + word0) & _WORD) ^ word3 ^ key1,
            product0 & _WORD,
        )
    return word0, word1, word2, word3
