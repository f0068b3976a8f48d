"""Settings that every test shares: one thread for each worker, a fixed seed, where the corpora are."""

import os

# bf16 through oneDNN's AMX kernels ends the process on some machines; read once, when torch is imported.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# The tensors of tests are small: with several threads most of the time goes into waiting, on a busy machine nearly all.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Plain torch, whatever was built before; tests of kernels switch them on. PROBATTN_KERNELS=on runs all tests with them.
os.environ.setdefault("PROBATTN_KERNELS", "off")

from pathlib import Path

import hypothesis
import pytest
import torch

SEED = 20180

# Examples are the same in every run, and a busy machine must not fail a test for being slow.
hypothesis.settings.register_profile("probattn", derandomize=True, deadline=None)
hypothesis.settings.load_profile("probattn")


def pytest_configure() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _fixed_seed() -> None:
    torch.manual_seed(SEED)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the corpora; tests that ask for it carry the marker `data`."""
    name = os.environ.get("PROBATTN_DATA")
    if not name:
        pytest.skip("PROBATTN_DATA is not set; it names the folder with the corpora")
    folder = Path(name)
    if not folder.is_dir():
        pytest.fail(f"PROBATTN_DATA names {name}, which is not a folder; correct or unset it")
    return folder
