"""A trained text model: text from the prior, reconstructions, interpolations; a folder on disk."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from probattn.core import Mean, fold_seed
from probattn.data.bpe import BOS, EOS, PAD, UNK, Tokenizer
from probattn.data.parallel import split_words
from probattn.data.text import EncodedSentences, require_sentences
from probattn.decoding import Constraints, Hypothesis, Stepper, greedy, sample
from probattn.models import MemoryVae, ReadText
from probattn.models.text_vae_stepper import MemoryVaeStepper, SentenceVaeStepper
from probattn.recipes.generation_search import Generated
from probattn.recipes.storage import without_paths
from probattn.recipes.text_data import TextCorpus
from probattn.recipes.text_drawing import Law, between, check_numbers, drawn_latents, drawn_lengths, word_seed
from probattn.recipes.text_network import TextModel
from probattn.recipes.text_settings import SITE, TextSettings
from probattn.training import save_model_folder

_MAX_ROWS = 200
_PLAIN = Law()
TOKENIZER_FILE = "tokenizer.json"
LENGTHS_FILE = "lengths.json"
NUM_EXAMPLES = 5


class TextWriter:
    """A model with its words and settings; `probattn.load(folder)` gives one.

    Args:
        model: The network; it is put into evaluation mode.
        tokenizer: Its words.
        settings: Of the row it was trained with.
        lengths: How many training sentences have 1, 2, ... words; new sentences get their lengths from it.
    """

    def __init__(self, model: TextModel, tokenizer: Tokenizer, *, settings: TextSettings, lengths: Sequence[int]):
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.settings = settings
        self.lengths = tuple(lengths)

    @torch.no_grad()
    def sample(
        self,
        count: int,
        *,
        length: int | None = None,
        temperature: float = 1.0,
        top_p: float = 1.0,
        word_temperature: float | None = None,
        min_words: int = 1,
        seed: int = 0,
    ) -> list[Generated]:
        """Sentences from scratch: latents from the prior, then the most probable words, or drawn ones.

        Args:
            count: How many.
            length: Words of each, where latents stand for words; at most so many else. None: as in training.
            temperature: Of codes, or of the words of a language model; Gaussians are scaled by it. 0: no chance.
            top_p: Of codes, and of words that are drawn; Gaussian latents have none.
            word_temperature: 0: the most probable words given the latents; 1: words as the model has them, so that
                sentences are samples of the model. None: 0, but `temperature` where there is no latent, or codes are
                random and leave much to the words.
            min_words: No sentence ends before; where it equals `length`, all have exactly so many words, and most are
                cut off there. Diversity depends on the number of words, so models are compared like this.
            seed: The same seed gives the same sentences.
        """
        law = Law(temperature, top_p, word_temperature)
        blocks = self.samples(count, law, length=length, min_words=min_words, seed=seed)
        return [one for block in blocks for one in block]

    def samples(
        self, count: int, law: Law = _PLAIN, *, length: int | None = None, min_words: int = 1, seed: int = 0
    ) -> Iterator[list[Generated]]:
        """The same sentences as `sample` gives, some at a time, as they are made.

        Args:
            count: How many.
            law: Temperatures and top_p.
            length: As there.
            min_words: As there.
            seed: As there.
        """
        check_numbers(count=count, length=length, longest=len(self.lengths), min_words=min_words, seed=seed)
        law.check(self.settings)
        return self._blocks(count, length, law, min_words=min_words, seed=seed)

    @torch.no_grad()
    def reconstruct(self, sentences: Sequence[str]) -> list[str]:
        """Each sentence again, from its latent at the posterior's mean.

        Raises:
            ValueError: If the model has no latent, or a sentence has no word.
            TypeError: If it is no list of strings.
        """
        self._require_latent("reconstruct")
        found: dict[int, str] = {}
        for places in self._of_equal_length(sentences):
            read = self._read([sentences[place] for place in places])
            written = self._written(read, self._longest(read.value.shape[2]))
            found |= {place: one.text for place, one in zip(places, written, strict=True)}
        return [found[place] for place in range(len(sentences))]

    def count_unknown(self, sentences: Sequence[str]) -> tuple[int, int]:
        """Words of sentences that the model does not know, and all their words."""
        ids = [number for sentence in sentences for number in self.tokenizer.encode(self._cased(sentence))]
        return sum(number == UNK for number in ids), len(ids)

    @torch.no_grad()
    def interpolate(self, first: str, second: str, *, steps: int = 5) -> list[str]:
        """Sentences on the way from one to another, both reconstructions included.

        Latents are mixed linearly, codes replaced by the nearest ones; a memory's length changes evenly.
        """
        self._require_latent("interpolate")
        if steps < 2:
            raise ValueError(f"steps counts both ends, so it is at least 2, got {steps}")
        self._of_equal_length([first, second])  # refuses what is no sentence
        ends = [self._read([sentence]).value[0, 0] for sentence in (first, second)]  # (S, Z) each
        reads = [between(self.model, ends[0], ends[1], number / (steps - 1)) for number in range(steps)]
        return [self._written(read, self._longest(read.value.shape[2]))[0].text for read in reads]

    def examples(self, corpus: TextCorpus) -> list[dict[str, Any]]:
        """Sentences from scratch, reconstructions and an interpolation, for the report."""
        drawn = [one.text for one in self.sample(NUM_EXAMPLES)]
        made: list[dict[str, Any]] = [{"kind": "from scratch", "texts": drawn}]
        if self.settings.latent is None:
            return made
        test = list(corpus.texts["test"][:NUM_EXAMPLES])
        pairs = zip(test, self.reconstruct(test), strict=True)
        made.append({"kind": "reconstruction", "texts": [f"{one} => {again}" for one, again in pairs]})
        made.append({"kind": "interpolation", "texts": self.interpolate(test[0], test[:2][-1])})
        return made

    def save(self, folder: Path, plain: Mapping[str, Any], *, text: str | None = None) -> Path:
        """Write config.json, model.safetensors, tokenizer.json and lengths.json; all or nothing.

        Args:
            folder: One of that name is replaced.
            plain: The settings as plain data.
            text: Digest of the text it was trained on.
        """
        files = {
            TOKENIZER_FILE: self.tokenizer.to_bytes(),
            LENGTHS_FILE: json.dumps({"counts": list(self.lengths), "digest": self.tokenizer.digest}).encode(),
        }
        config = {"recipe": "text_vae", "settings": without_paths(plain), "text": text}
        return save_model_folder(self.model, folder, config=config, files=files)

    @torch.no_grad()
    def _blocks(
        self, count: int, length: int | None, law: Law, *, min_words: int, seed: int
    ) -> Iterator[list[Generated]]:
        latent, device = self.settings.latent, self.model.device
        # a memory says by itself how long its sentence is
        is_free = latent is not None and latent.positions is None and min_words != length
        for start in range(0, count, _MAX_ROWS):
            rows = min(_MAX_ROWS, count - start)
            own = fold_seed(torch.tensor(seed, device=device), start)
            wanted = drawn_lengths(self.lengths, rows, own) if length is None else torch.full((rows,), length)
            yield self._written(
                drawn_latents(self.model, self.settings, wanted.to(device), law=law, seed=own),
                len(self.lengths) + 10 if length is None else length + (10 if is_free else 1),
                at_most=None if is_free else length,
                min_words=min_words,
                temperature=law.of_words(latent),
                top_p=law.top_p,
                has_unknown=law.has_unknown,
                seed=word_seed(own, seed if start == 0 else None, has_latent=latent is not None),
            )

    def _of_equal_length(self, sentences: Sequence[str]) -> list[list[int]]:
        """Places of sentences with equally many words, so that none is padded.

        Raises:
            TypeError: If it is no list of strings.
            ValueError: If one has no word.
        """
        require_sentences(sentences)
        places: dict[int, list[int]] = {}
        for place, sentence in enumerate(sentences):
            if not split_words(sentence):
                raise ValueError(f"sentence {place} is empty: it has no word to read")
            places.setdefault(len(split_words(sentence)), []).append(place)
        return [some[i : i + _MAX_ROWS] for some in places.values() for i in range(0, len(some), _MAX_ROWS)]

    def _cased(self, sentence: str) -> str:
        return sentence.lower() if self.settings.corpus.lowercase else sentence

    def _read(self, sentences: Sequence[str]) -> ReadText:
        """Sentences of equal length."""
        lines = [self._cased(sentence) for sentence in sentences]
        encoded = EncodedSentences.from_lines(lines, self.tokenizer, name="these sentences")
        batch = encoded.batch(range(len(lines))).to(self.model.device)
        return self.model.encode(batch.words, batch.words_mask, {SITE: Mean()})

    def _longest(self, positions: int) -> int:
        """Most words of a text from so many latents; one latent may stand for any sentence that training had."""
        is_memory = self.settings.latent is not None and self.settings.latent.scope == "memory"
        return 2 * positions + 10 if is_memory else len(self.lengths) + 10

    def _written(
        self,
        read: ReadText,
        longest: int,
        *,
        at_most: int | None = None,
        min_words: int = 1,  # no training sentence is without a word
        temperature: float = 0.0,
        top_p: float = 1.0,
        has_unknown: bool = False,
        seed: int = 0,
    ) -> list[Generated]:
        forbidden = (PAD, BOS) if has_unknown else (PAD, BOS, UNK)
        constraints = Constraints(bos=BOS, eos=EOS, max_length=longest, min_length=min_words, forbidden=forbidden)
        stepper: Stepper[ReadText, Any] = (
            MemoryVaeStepper(self.model) if isinstance(self.model, MemoryVae) else SentenceVaeStepper(self.model)
        )
        if temperature == 0.0:
            found: list[Hypothesis] = greedy(stepper, read, constraints=constraints)
        else:
            drawn = sample(
                stepper,
                read,
                constraints=constraints,
                temperature=temperature,
                top_p=top_p if top_p < 1.0 else None,
                seed=seed,
            )
            found = [one[0] for one in drawn]
        return [Generated(self.tokenizer.decode(one.tokens[:at_most]), one.log_prob, one.is_complete) for one in found]

    def _require_latent(self, verb: str) -> None:
        if self.settings.latent is None:
            raise ValueError(f"row '{self.settings.row}' is a language model without a latent, it cannot {verb}")
