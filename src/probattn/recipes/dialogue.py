"""Dialogue: a reply to a prompt (Bahuleyan et al. 2018, Sec. 4.2), with the rows of `question_generation`.

probattn train dialogue/ved-vattn-h --scale generated
probattn compare dialogue --rows ded-dattn ved-dattn ved-vattn-0 ved-vattn-h --scale cornell
"""

from functools import partial

from probattn.recipes.generation import train
from probattn.recipes.generation_report import write_report
from probattn.recipes.generation_settings import GenerationSettings
from probattn.recipes.generator import load_generator
from probattn.recipes.recipe import Recipe

RECIPE = Recipe(
    "dialogue",
    GenerationSettings,
    partial(train, "dialogue"),
    write_report,
    load_model=load_generator,
    default_scale="generated",
    row_home="question_generation",
)
