"""PyTorchJobs with a course of life, made from a seed.

Themes say what a case is about and are taken in turn, chance fills in the details: so even a small sample shows many
rules, and a large one shows each of them in many shapes.
"""

import random

from tests.support.differential.awkward_themes import AWKWARD
from tests.support.differential.case_writer import CaseWriter, Themes
from tests.support.differential.life_themes import LIVES
from tests.support.differential.played_cases import Case

THEMES: Themes = {**LIVES, **AWKWARD}


def generated_cases(count: int, *, seed: int, themes: Themes = THEMES) -> list[Case]:
    """The first `count` cases of a seed. A larger count begins with the same cases."""
    return [_case(number, random.Random(f"{seed}/{number}"), themes) for number in range(count)]


def _case(number: int, chance: random.Random, themes: Themes) -> Case:
    theme = list(themes)[number % len(themes)]
    write = CaseWriter(f"case-{number:02d}", chance)
    themes[theme](write)
    return Case(write.name, theme, write.manifest, write.scenes)
