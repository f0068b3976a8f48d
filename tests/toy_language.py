"""A parallel text that is learnt in seconds: word by word, with the last two words swapped."""

import random
from pathlib import Path

WORDS = {"der": "the", "hund": "dog", "katze": "cat", "sieht": "sees", "mag": "likes", "rote": "red", "alte": "old"}


def write_toy_language(folder: Path, *, size: int = 160) -> tuple[Path, Path]:
    """Write toy.de and toy.en."""
    draw = random.Random(0)
    pairs = []
    for _ in range(size):
        source = draw.choices(list(WORDS), k=draw.randint(3, 6))
        target = [WORDS[word] for word in source]
        target[-2:] = reversed(target[-2:])
        pairs.append((" ".join(source), " ".join(target)))
    source_file, target_file = folder / "toy.de", folder / "toy.en"
    source_file.write_text("".join(f"{source}\n" for source, _ in pairs))
    target_file.write_text("".join(f"{target}\n" for _, target in pairs))
    return source_file, target_file


SMALL = {
    "corpus.test_size": 20,
    "corpus.vocabulary_size": 60,
    "network.embedding_dim": 16,
    "network.encoder_dim": 8,
    "network.decoder_dim": 16,
    "network.attention_dim": 8,
    "network.dropout": 0.0,
    "trainer.learning_rate": 0.02,
    "trainer.warmup_updates": 2,
    "trainer.tensorboard": "false",
    "decoding.beam_size": 2,
    "epochs": 2,
    "max_tokens": 200,
}
"""Settings that make a row train in a second."""
