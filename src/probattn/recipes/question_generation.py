"""Question generation: which question does a sentence answer (Bahuleyan et al. 2018, Sec. 4.1).

probattn train question_generation/ved-vattn-h --scale generated
probattn compare question_generation --rows ved-dattn ved-vattn-0 ved-vattn-h --scale squad
"""

from functools import partial

from probattn.recipes.generation import train
from probattn.recipes.generation_report import write_report
from probattn.recipes.generation_settings import GenerationSettings
from probattn.recipes.generator import load_generator
from probattn.recipes.recipe import Recipe

RECIPE = Recipe(
    "question_generation",
    GenerationSettings,
    partial(train, "question_generation"),
    write_report,
    load_model=load_generator,
    default_scale="generated",
)
