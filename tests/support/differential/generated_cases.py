"""PyTorchJobs with a course of life, made from a seed.

Themes say what a case is about and are taken in turn, chance fills in the details: so even a small sample shows many
rules, and a large one shows each of them in many shapes.
"""

import random

from tests.support.differential.case_builder import CaseBuilder, Themes
from tests.support.differential.cases import Case
from tests.support.differential.edge_case_themes import EDGE_CASES
from tests.support.differential.lifecycle_themes import LIFECYCLES

THEMES: Themes = {**LIFECYCLES, **EDGE_CASES}


def generated_cases(count: int, *, seed: int, themes: Themes = THEMES) -> list[Case]:
    """The first `count` cases of a seed. A larger count begins with the same cases."""
    return [_case(number, random.Random(f"{seed}/{number}"), themes) for number in range(count)]


def _case(number: int, chance: random.Random, themes: Themes) -> Case:
    theme = list(themes)[number % len(themes)]
    case = CaseBuilder(f"case-{number:02d}", chance)
    themes[theme](case)
    return Case(case.name, theme, case.manifest, case.steps)
