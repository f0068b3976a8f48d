"""Modular co-attention with random weights (Yu et al. 2019; BAM, Sec. 4.2 and Appendix B.2.2).

The encoder is a stack of self-attention units over the words of a question, the decoder one of self-attention and
guided attention over the regions of a picture; guided attention asks the words. Both sides are then reduced to a vector
by a softmax over their positions, added, and read out. Answers compete in a softmax, where MCAN has a sigmoid each, so
that the likelihood is one and rows can be compared with Deng et al.'s network.

Size letters: B questions, R regions, D features of a region, T words, E width of the network, F = 2 E of
the fused vector, A answers.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from probattn.core import Dense, Evaluation, Latent
from probattn.models.regions import RegionEncoder
from probattn.models.vqa import QuestionEncoder, VqaInputs, VqaPrediction, require_width
from probattn.nn import Dropout, MultiheadAttention

__all__ = ["AttentionUnit", "FeedForward", "Mcan", "Reduction"]


class AttentionUnit(nn.Module):
    """norm(x + dropout(attention(x, y))): self-attention where y is x, guided attention otherwise.

    Args:
        attention: With `batch_first`.
        dropout: Of what it reads.
    """

    def __init__(self, attention: MultiheadAttention, dropout: float = 0.0):
        super().__init__()
        self.attention = attention
        self.dropout = Dropout(dropout)
        self.norm = nn.LayerNorm(attention.embed_dim)

    def forward(self, x: Tensor, y: Tensor, *, x_mask: Tensor, y_mask: Tensor) -> tuple[Tensor, Latent]:
        """Let x (B, S, E) read y (B, S', E); masks are False for padding. Padded x have no KL."""
        read, result = self.attention.forward_with_latents(
            x, y, y, key_padding_mask=~y_mask, query_padding_mask=~x_mask
        )
        return self.norm(x + self.dropout(read)), result.latent


class FeedForward(nn.Module):
    """norm(x + dropout(W dropout(relu(V x)))).

    Args:
        dim: E.
        hidden_dim: Of the layer in between.
        dropout: Of both layers.
    """

    def __init__(self, dim: int, hidden_dim: int, *, dropout: float = 0.0):
        super().__init__()
        self.widen = nn.Linear(dim, hidden_dim)
        self.narrow = nn.Linear(hidden_dim, dim)
        self.dropout = Dropout(dropout)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x: Tensor) -> Tensor:
        """(B, S, E) to (B, S, E)."""
        made: Tensor = self.norm(x + self.dropout(self.narrow(self.dropout(torch.relu(self.widen(x))))))
        return made


class Reduction(nn.Module):
    """Attentional reduction: softmax over positions of a small network's scores, then their mean in F dimensions.

    Args:
        dim: E.
        fused_dim: F.
        dropout: Of the network's hidden layer.
    """

    def __init__(self, dim: int, fused_dim: int, *, dropout: float = 0.0):
        super().__init__()
        self.score = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), Dropout(dropout), nn.Linear(dim, 1))
        self.project = nn.Linear(dim, fused_dim)

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """From (B, S, E) and (B, S) to the vector (B, F) and the weights (B, S)."""
        weights = Dense(mask).log_softmax(self.score(x).squeeze(-1)).exp()
        vector: Tensor = self.project((weights.unsqueeze(-1) * x).sum(dim=1))
        return vector, weights


class Mcan(nn.Module):
    """Encoder over words, decoder over regions, reduction, fusion, answer.

    The reductions are soft in all rows, as the paper makes the multi-head attention random; their weights over regions
    are what the network is said to look at. Whether attention draws is a switch of its own (`probattn.sampling`).

    Args:
        question: Reads the question; its width is E.
        attention: Makes the attention of a unit from its name, which is the name of its site.
        region_dim: D.
        num_layers: Of encoder and decoder each.
        hidden_dim: Of the feed-forward layers.
        num_answers: A.
        dropout: Of all units.
        encoder: From regions as they come to (B, R, D), where those are too raw; None: as they are (the paper).
    """

    def __init__(
        self,
        question: QuestionEncoder,
        attention: Callable[[str], MultiheadAttention],
        *,
        region_dim: int,
        num_layers: int,
        hidden_dim: int,
        num_answers: int,
        dropout: float = 0.1,
        encoder: RegionEncoder | None = None,
    ):
        super().__init__()
        dim, fused_dim = question.dim, 2 * question.dim
        self.question = question
        self.encoder = encoder
        self.input_dim = region_dim if encoder is None else encoder.feature_dim
        self.project_region = nn.Linear(region_dim, dim)

        def units(kind: str) -> nn.ModuleList:
            names = [f"{kind}{number}" for number in range(1, num_layers + 1)]
            return nn.ModuleList([AttentionUnit(attention(name), dropout) for name in names])

        def feed_forward() -> nn.ModuleList:
            return nn.ModuleList([FeedForward(dim, hidden_dim, dropout=dropout) for _ in range(num_layers)])

        self.words_units, self.words_feed = units("words"), feed_forward()
        self.regions_units, self.guided_units, self.regions_feed = units("regions"), units("guided"), feed_forward()
        self.words_reduction = Reduction(dim, fused_dim, dropout=dropout)
        self.regions_reduction = Reduction(dim, fused_dim, dropout=dropout)
        self.norm = nn.LayerNorm(fused_dim)
        self.output = nn.Linear(fused_dim, num_answers)

    @property
    def site_names(self) -> tuple[str, ...]:
        """Of the attention that has a family; none in a soft network."""
        found = [module for module in self.modules() if isinstance(module, MultiheadAttention)]
        return tuple(module.name for module in found if module.family is not None)

    def forward(self, inputs: VqaInputs, answers: Tensor) -> Evaluation:
        """Log-likelihood of answers (B), and the receipts of all random attention."""
        logits, _, latents = self._run(inputs)
        log_probs = torch.log_softmax(logits, dim=-1)
        chosen = log_probs.gather(-1, answers.unsqueeze(-1)).squeeze(-1)  # (B)
        return Evaluation(log_lik=chosen.unsqueeze(0), latents=latents)

    def predict(self, inputs: VqaInputs) -> VqaPrediction:
        """Distribution of the answer under one draw, or with plug-in weights where sampling is switched off."""
        logits, weights, _ = self._run(inputs)
        return VqaPrediction(torch.log_softmax(logits, dim=-1), weights)

    def _run(self, inputs: VqaInputs) -> tuple[Tensor, Tensor, tuple[Latent, ...]]:
        """Logits (B, A), weights (B, R) over the picture, and receipts."""
        require_width(inputs.regions, self.input_dim)
        encoded = inputs.regions if self.encoder is None else self.encoder(inputs.regions)
        words, regions = self.question(inputs.words), self.project_region(encoded)  # (B, T, E), (B, R, E)
        words_mask, regions_mask = inputs.words_mask, inputs.regions_mask
        latents: list[Latent] = []
        for unit, feed in zip(self.words_units, self.words_feed, strict=True):
            words, latent = unit(words, words, x_mask=words_mask, y_mask=words_mask)
            words = feed(words)
            latents.append(latent)
        stack = zip(self.regions_units, self.guided_units, self.regions_feed, strict=True)
        for unit, guided, feed in stack:
            regions, own = unit(regions, regions, x_mask=regions_mask, y_mask=regions_mask)
            regions, asked = guided(regions, words, x_mask=regions_mask, y_mask=words_mask)
            regions = feed(regions)
            latents += [own, asked]
        question, _ = self.words_reduction(words, words_mask)
        picture, weights = self.regions_reduction(regions, regions_mask)
        names = set(self.site_names)
        kept = tuple(latent for latent in latents if latent.name in names)
        return self.output(self.norm(question + picture)), weights, kept
