"""The output layer alone, with its gradients: soft attention, a sample, and ways to enumerate alignments.

Size letters: K particles, N target words, D width, V words of the vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from probattn.kernels import latent_cross_entropy, latent_readout_loss, native

__all__ = ["OutputLayer", "OutputLayerSizes"]

IN_TORCH_ALONE = ("soft", "enumeration, keeping all logits")
"""Ways that use torch's own operators."""


@dataclass(frozen=True)
class OutputLayerSizes:
    """A small batch of Deng et al.'s IWSLT14 network."""

    sentences: int = 6
    source_length: int = 24
    target_length: int = 24
    width: int = 512
    vocabulary: int = 14_000


class OutputLayer:
    """Random hidden states, output weights and log-probabilities of alignments.

    Args:
        sizes: Of all tensors.
        peaked_sigma: Standard deviation of the scores of peaked alignments, in nats; of the others it is one.
        skip_below: For what is skipped.
    """

    def __init__(self, sizes: OutputLayerSizes, *, peaked_sigma: float = 10.0, skip_below: float = 1e-4):
        particles, targets = sizes.source_length, sizes.sentences * sizes.target_length
        hidden = torch.tanh(torch.randn(particles, targets, sizes.width))  # (K, N, D)
        self.one, self.two, self.all = (hidden[:count].clone().requires_grad_() for count in (1, 2, particles))
        self.weight = (torch.randn(sizes.vocabulary, sizes.width) * sizes.width**-0.5).requires_grad_()
        self.bias = torch.zeros(sizes.vocabulary, requires_grad=True)
        self.target = torch.randint(sizes.vocabulary, (targets,))
        scores = torch.randn(particles, targets)
        self.query, self.memory = (
            (0.5**0.5 * torch.randn(sizes.sentences, length, sizes.width)).requires_grad_()
            for length in (sizes.target_length, sizes.source_length)
        )
        self.flat = torch.log_softmax(scores, dim=0)  # (K, N)
        self.peaked = torch.log_softmax(peaked_sigma * scores, dim=0)
        self.skip_below = skip_below

    def contestants(self) -> dict[str, Callable[[], None]]:
        """All ways, by name; the first is the reference. In torch, and in C++ where the back end is there."""
        found = {name: _in_torch(call) for name, call in self._ways().items()}
        if native.is_active():
            named = {name: call for name, call in self._ways().items() if name not in IN_TORCH_ALONE}
            found |= {f"{name}, C++": call for name, call in named.items()}
        return found

    def _ways(self) -> dict[str, Callable[[], None]]:
        return {
            "soft": self.soft,
            "soft, in chunks": self.soft_in_chunks,
            "one sample, soft baseline": lambda: self.sample(0.0),
            "one sample, soft baseline, skipping": lambda: self.sample(self.skip_below),
            "enumeration": lambda: self.enumerate(self.flat),
            "enumeration, recomputing": lambda: self.enumerate(self.flat, has_credit=False),
            "enumeration, peaked, skipping": lambda: self.enumerate(self.peaked, skip_below=self.skip_below),
            "enumeration, keeping all logits": self.enumerate_keeping_logits,
            "one function": lambda: self.one_function(self.flat),
            "one function, peaked, skipping": lambda: self.one_function(self.peaked, skip_below=self.skip_below),
        }

    def soft(self) -> None:
        """One particle, with torch's own operators."""
        self._backward(-F.cross_entropy(F.linear(self.one[0], self.weight, self.bias), self.target, reduction="sum"))

    def soft_in_chunks(self) -> None:
        """One particle, as the model reads it out."""
        log_lik = latent_cross_entropy(
            self.one,
            self.weight,
            bias=self.bias,
            target=self.target,
            credit=lambda log_lik, targets: torch.ones_like(log_lik),
        )
        self._backward(log_lik.sum())

    def sample(self, skip_below: float) -> None:
        """A sample and its baseline, whose credit is zero."""
        share = torch.tensor([[1.0], [0.0]])
        log_lik = latent_cross_entropy(
            self.two,
            self.weight,
            bias=self.bias,
            target=self.target,
            credit=lambda log_lik, targets: share.expand_as(log_lik),
            skip_below=skip_below,
        )
        self._backward((log_lik * share).sum())

    def enumerate(self, log_prior: Tensor, *, has_credit: bool = True, skip_below: float = 0.0) -> None:
        """The marginal likelihood over particles with log-probabilities (K, N)."""

        def credit(log_lik: Tensor, targets: slice) -> Tensor:
            return torch.softmax(log_prior[:, targets] + log_lik, dim=0)

        log_lik = latent_cross_entropy(
            self.all,
            self.weight,
            bias=self.bias,
            target=self.target,
            credit=credit if has_credit else None,
            skip_below=skip_below,
        )
        self._backward(torch.logsumexp(log_prior + log_lik, dim=0).sum())

    def one_function(self, log_prior: Tensor, *, skip_below: float = 0.0) -> None:
        """The marginal likelihood from queries and memory, hidden states and all."""
        (sentences, steps, _), positions = self.query.shape, self.memory.shape[1]
        losses = latent_readout_loss(
            self.query,
            self.memory,
            log_prior=log_prior.T.reshape(sentences, steps, positions),
            weight=self.weight,
            bias=self.bias,
            target=self.target.view(sentences, steps),
            skip_below=skip_below,
        )
        self._backward(-losses.sum())

    def enumerate_keeping_logits(self) -> None:
        """The same as one would write it first: (K, N, V) logits under autograd."""
        log_prob = torch.log_softmax(F.linear(self.all, self.weight, self.bias), dim=-1)  # (K, N, V)
        index = self.target.expand(log_prob.shape[:2]).unsqueeze(-1)
        log_lik = log_prob.gather(-1, index).squeeze(-1)
        self._backward(torch.logsumexp(self.flat + log_lik, dim=0).sum())

    @torch.no_grad()
    def kept_share(self) -> float:
        """Share of the peaked alignments that are not skipped."""
        log_lik = latent_cross_entropy(self.all, self.weight, bias=self.bias, target=self.target)
        posterior = torch.softmax(self.peaked + log_lik, dim=0)
        return float((posterior > self.skip_below).float().mean())

    def _backward(self, bound: Tensor) -> None:
        bound.backward()
        for leaf in (self.one, self.two, self.all, self.query, self.memory, self.weight, self.bias):
            leaf.grad = None


def _in_torch(call: Callable[[], None]) -> Callable[[], None]:
    def switched() -> None:
        with native.switched(False):
            call()

    return switched
