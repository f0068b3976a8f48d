"""`probattn kernels`: what the kernels run on."""

import sys

from jsonargparse import ArgumentParser, Namespace

from probattn import kernels
from probattn.cli.command import Command

__all__ = ["COMMAND"]

_TOLERANCE = 1e-4
_DESCRIPTION = """Says whether kernels run in C++ or in plain torch, and why; builds them; tests them on this machine.

probattn kernels                 what is active
probattn kernels --build         compile ahead, about a minute; later runs then use it by themselves
probattn kernels --test          compare with plain torch

PROBATTN_KERNELS=off keeps everything in torch, PROBATTN_KERNELS=on builds at the first use. Needs a C++ compiler and
the extra `kernels`; without them everything runs in torch, with the same results up to rounding. On CUDA dense
attention runs in torch's flex_attention where that fits; PROBATTN_FLEX=off keeps it in plain torch."""


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--build", action="store_true", help="compile them, if that was not done before")
    parser.add_argument("--test", action="store_true", help="compare them with plain torch")


def _run(arguments: Namespace) -> None:
    if arguments.build:
        print("compiling, if need be ...", file=sys.stderr)
    status = kernels.build() if arguments.build else kernels.status()
    print(status.reason)
    print(kernels.flex_summary())
    if arguments.build and not status.is_active:
        raise SystemExit(1)
    if arguments.test:
        differences = kernels.self_test()
        for name, difference in differences.items():
            print(f"{name:<42} {difference:.1e}")
        is_right = differences["noise"] == 0.0 and all(one <= _TOLERANCE for one in differences.values())  # NaN is not
        if not is_right:
            raise SystemExit("the kernels do not give what plain torch gives; use PROBATTN_KERNELS=off, and report it")


COMMAND = Command("what the kernels run on; build and test them", _DESCRIPTION, _add_arguments, _run)
