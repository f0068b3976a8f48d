"""Attributive adjectives: which ones fit a noun, and their endings."""

from .chooser import Chooser
from .determiners import Determiner
from .german import Case, decline_adjective
from .lexicon import Noun, Phrase
from .tokens import Token, Tokens, place_phrase

__all__ = ["adjective_class", "draw_adjectives"]

VERY = Phrase(("sehr",), ("very",), ((0, 0),))
# Adjectives that do not go together: the second one is left out.
OPPOSITES = (
    {"klein", "groß", "riesig", "winzig"},
    {"alt", "neu", "jung"},
    {"gut", "schlecht", "schrecklich", "ausgezeichnet", "wunderbar", "köstlich"},
    {"lang", "kurz"},
    {"schwer", "leicht", "einfach", "schwierig"},
    {"kalt", "warm", "heiß"},
    {"teuer", "billig", "wertvoll"},
    {"reich", "arm"},
    {"langweilig", "interessant", "spannend", "lustig"},
    {"schön", "hässlich", "hübsch"},
    {"krank", "gesund"},
    {"glücklich", "traurig"},
    {"klug", "dumm"},
    {"faul", "fleißig", "frisch", "reif"},
    {"freundlich", "nett", "böse"},
    {"laut", "ruhig"},
    {"sauber", "schmutzig"},
    {"nass", "trocken"},
    {"süß", "sauer"},
    {"stark", "schwach"},
    {"richtig", "falsch"},
    {"deutsch", "französisch", "italienisch", "englisch"},
    {"rot", "blau", "grün", "gelb", "schwarz", "weiß", "braun", "grau", "bunt"},
)


def adjective_class(chooser: Chooser, noun: Noun, *, name: str) -> str:
    """The class whose adjectives fit; small classes fall back on the noun's first one."""
    return name if len(chooser.lexicon.adjectives.get(name, ())) > 4 else noun.classes[0]


def draw_adjectives(
    chooser: Chooser, name: str, *, determiner: Determiner, case: Case, gender: str, is_plain: bool
) -> tuple[Tokens, Tokens]:
    """Up to two adjectives, the second one after "und"; now and then an adverb of degree before the first."""
    choices = chooser.lexicon.adjectives.get(name, ())
    count = 0 if is_plain or not choices else chooser.weigh(((0, 0.66), (1, 0.29), (2, 0.05)))
    german: Tokens = ()
    english: Tokens = ()
    seen: set[str] = set()
    for number in range(count):
        adjective = chooser.zipf(choices)
        if adjective.german in seen:
            break
        seen |= next((group for group in OPPOSITES if adjective.german in group), {adjective.german})
        if number:
            key = (chooser.key(),)
            german, english = (*german, Token("und", key)), (*english, Token("and", key))
        elif adjective.comparative and not determiner.is_bare and chooser.chance(0.1):
            german, english = place_phrase(chooser, VERY)
        key = (chooser.key(),)
        form = decline_adjective(adjective.stem, determiner.strength, case=case, gender=gender)
        german, english = (*german, Token(form, key)), (*english, Token(adjective.english, key))
    return german, english
