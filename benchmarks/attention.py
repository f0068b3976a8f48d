"""Dense attention with random weights beside torch's own: time and memory over the number of keys.

    PROBATTN_KERNELS=on python benchmarks/attention.py --output runs/bench/attention.json     # `make bench` runs it
    python benchmarks/attention.py --longest 1024 --rounds 5

Times are ratios to `F.scaled_dot_product_attention`, deterministic and without a KL, interleaved in one run (see
`interleaved`). "C++" is the compiled kernel, "torch" the path without a compiler, "materialised" the usual way (see
`attention_materialised`). The number of rounds falls with the length, to three at least. Peak memory is counted twice:
tensors alone (`peak_memory`), and pages of the process, scratch space included (`resident_memory`).

bfloat16 is measured by a second process, since torch's own code for it ends the process on some machines.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from attention_contestants import DRAWS, KL, SDPA, Call, Inputs, Pass, Sizes, contestants, draw_contestants, sdpa
from attention_profile import profile_table
from attention_table import render_attention
from attention_targets import TARGETS, verdicts
from interleaved import ratios
from jsonargparse import auto_cli
from meter import Meter
from peak_memory import peak_megabytes
from resident_memory import peak_resident_megabytes

from probattn.kernels import native

Table = dict[str, Any]
Calls = Mapping[str, Callable[[], None]]
PASSES: dict[Pass, str] = {"forward": "Forward", "train step": "Train step"}


@dataclass(frozen=True)
class Plan:
    """How much is measured.

    Attributes:
        lengths: n of the main tables.
        some: n of padded batches, bfloat16 and draws.
        sizes: Batch, heads and features.
    """

    lengths: tuple[int, ...] = (128, 256, 512, 1024, 2048, 4096, 8192)
    some: tuple[int, ...] = (128, 512, 2048)
    sizes: Sizes = field(default_factory=lambda: Sizes(length=0))

    def at_most(self, longest: int) -> "Plan":
        """Without longer ones."""
        lengths = tuple(n for n in self.lengths if n <= longest)
        return replace(self, lengths=lengths, some=tuple(n for n in self.some if n <= longest))


TINY = Plan(lengths=(8, 16), some=(8,), sizes=Sizes(length=0, batch=2, heads=2, dim=4))


def table_of(
    title: str, contests: Callable[[int], Calls], *, plan: Plan, lengths: tuple[int, ...], meter: Meter
) -> Table:
    """One row a contestant, one column a length.

    Args:
        title: Of the table.
        contests: From a length to the contestants, the reference first.
        plan: For the sizes.
        lengths: The columns.
        meter: For many rounds; see `rounds_at`.
    """
    rows: dict[str, dict[str, Any]] = {}
    for length in lengths:
        print(f"{title}, n = {length} ...", file=sys.stderr, flush=True)
        for name, cell in cells_of(contests(length), replace(meter, rounds=rounds_at(length, meter.rounds))).items():
            rows.setdefault(name, {"name": name, "cells": {}})["cells"][str(length)] = cell
    for target in TARGETS:
        if target.title == title and target.quantity == "ratio" and target.contestant in rows:
            rows[target.contestant]["target"] = target.bound
    measures = {"batch": plan.sizes.batch, "heads": plan.sizes.heads, "features": plan.sizes.dim}
    return {"title": title, "sizes": measures, "lengths": list(lengths), "rows": list(rows.values())}


def cells_of(calls: Calls, meter: Meter) -> dict[str, dict[str, float]]:
    """Time over the first contestant's, and memory, of each."""
    seconds = meter.seconds(calls)
    first, ours = next(iter(calls)), f"{KL}, C++"
    over_first = ratios(seconds, first)
    over_ours = ratios(seconds, ours) if ours in calls else {}
    found: dict[str, dict[str, float]] = {}
    for name, ratio in over_first.items():
        cell = {"ratio": ratio.median, "lower": ratio.lower, "upper": ratio.upper, "rounds": meter.rounds}
        cell["seconds"] = sorted(seconds[name])[len(seconds[name]) // 2]
        cell["megabytes"] = peak_megabytes(calls[name])
        resident = peak_resident_megabytes(calls[name])
        if resident is not None:
            cell["resident_megabytes"] = resident
        if name.endswith("materialised") and over_ours:
            cell["over_ours"] = over_ours[name].median
        found[name] = cell
    for cell in found.values():
        cell["memory_ratio"] = cell["megabytes"] / max(1e-9, found[first]["megabytes"])
    return found


def rounds_at(length: int, rounds: int) -> int:
    """`rounds` at 1,024 keys, more below and fewer above."""
    return 1 if rounds == 1 else max(3, min(4 * rounds, rounds * 1024 // length))


def main_tables(plan: Plan, meter: Meter) -> list[Table]:
    """Forward passes and train steps, full, causal and padded, and draws."""
    found = []
    for mask in ("full", "causal", "padded"):
        sizes = replace(plan.sizes, mask=mask, batch=plan.sizes.batch * (2 if mask == "padded" else 1))
        for kind, title in PASSES.items():

            def contests(length: int, sizes: Sizes = sizes, kind: Pass = kind) -> Calls:
                return contestants(Inputs(replace(sizes, length=length)), kind)

            lengths = plan.some if mask == "padded" else plan.lengths
            own = replace(plan, sizes=sizes)
            found.append(table_of(f"{title}, {mask}", contests, plan=own, lengths=lengths, meter=meter))

    def draws(length: int) -> Calls:
        return draw_contestants(Inputs(replace(plan.sizes, length=length)))

    return [*found, table_of(f"{DRAWS} draws, full", draws, plan=plan, lengths=plan.some, meter=meter)]


def bfloat16_tables(plan: Plan, meter: Meter) -> list[Table]:
    """The same in bfloat16, over torch's in bfloat16."""
    found = []
    for kind, title in PASSES.items():

        def contests(length: int, kind: Pass = kind) -> Calls:
            sizes = replace(plan.sizes, length=length)
            full = {f"{SDPA}, float32": Call(sdpa, Inputs(sizes), kind=kind)}
            return contestants(Inputs(replace(sizes, dtype=torch.bfloat16)), kind) | full

        found.append(table_of(f"{title}, bfloat16", contests, plan=plan, lengths=plan.some, meter=meter))
    return found


def tables_of_another_process(options: list[str]) -> tuple[list[Table], str]:
    """Tables in bfloat16, and one sentence about them."""
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": os.environ.get("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")}
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "bfloat16.json"
        command = [sys.executable, __file__, "--dtype", "bfloat16", "--output", str(output), *options]
        done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            return [], f"not available: the process ended with code {done.returncode}"
        return json.loads(output.read_text())["tables"], "measured in a process of its own"


def main(
    output: Path = Path("runs/bench/attention.json"),
    rounds: int = 15,
    threads: int = 1,
    longest: int = 8192,
    dtype: Literal["float32", "bfloat16"] = "float32",
    quick: bool = False,
) -> None:
    """Run the benchmark.

    Args:
        output: JSON file.
        rounds: Rounds at 1,024 keys.
        threads: Of torch.
        longest: Largest n.
        dtype: bfloat16 alone, or float32 and then bfloat16 in another process.
        quick: One round at tiny sizes, to see that it runs; the numbers mean nothing.
    """
    meter = Meter.with_threads(threads, rounds=1 if quick else rounds)
    plan = TINY if quick else Plan().at_most(longest)
    record: dict[str, Any] = {
        "command": f"python benchmarks/attention.py --rounds {meter.rounds} --longest {longest}",
        **meter.about(threads),
        "kernels": native.status().reason.split(":")[0],
    }
    if dtype == "bfloat16":
        record["tables"] = bfloat16_tables(plan, meter)
    else:
        tables = main_tables(plan, meter)
        options = ["--rounds", str(rounds), "--threads", str(threads), "--longest", str(longest)]
        options += ["--quick=true"] if quick else []
        extra, record["bfloat16"] = tables_of_another_process(options)
        record["tables"] = [*tables, *extra]
        length = min(1024, plan.lengths[-1])
        profile_meter = replace(meter, rounds=rounds_at(length, meter.rounds))
        record["profile"] = profile_table(profile_meter, replace(plan.sizes, length=length))
        record["targets"] = verdicts(tables)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(record, indent=1) + "\n")
    print(render_attention(record))
    print(f"written to {output}")


if __name__ == "__main__":
    auto_cli(main, as_positional=False)
