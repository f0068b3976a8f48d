"""The pilot of Bahuleyan et al. 2018 (Sec. 2.4): an autoencoder whose decoder may or may not start from the encoder.

probattn compare pilot_vae --scale generated
probattn compare pilot_vae --scale captions
"""

from functools import partial

from probattn.recipes.generation import train
from probattn.recipes.generation_report import write_report
from probattn.recipes.generation_settings import GenerationSettings
from probattn.recipes.generator import load_generator
from probattn.recipes.recipe import Recipe

RECIPE = Recipe(
    "pilot_vae",
    GenerationSettings,
    partial(train, "pilot_vae"),
    write_report,
    load_model=load_generator,
    default_scale="generated",
)
