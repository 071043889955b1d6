"""The themes of each kind: its own ones, and those that make sense for every kind."""

from itertools import chain, islice

from tests.support.differential.case_builder import Themes
from tests.support.differential.edge_case_themes import EDGE_CASES
from tests.support.differential.gang_themes import GANGS
from tests.support.differential.lifecycle_themes import LIFECYCLES
from tests.support.differential.own_themes import OWN_THEMES
from trainwright.api.kinds import KINDS, Kind

_UNFIT = {"JAXJob": ("role removed", "role added", "failed twice"), "XGBoostJob": ("no replicas",)}
"""Themes that need two roles, or a job that a kind rejects."""


def themes_of(kind: Kind) -> Themes:
    """The kind's own themes come first, so that a sample has them."""
    return {**OWN_THEMES[kind.name], **_rotated({**LIFECYCLES, **EDGE_CASES}, kind)}


def gang_themes_of(kind: Kind) -> Themes:
    return _rotated(GANGS, kind)


def _rotated(themes: Themes, kind: Kind) -> Themes:
    """Each kind begins with other themes, so that a sample of all kinds has many of them."""
    fitting = {name: theme for name, theme in themes.items() if name not in _UNFIT.get(kind.name, ())}
    first = list(KINDS).index(kind.name) * len(fitting) // len(KINDS)
    return dict(islice(chain(fitting.items(), fitting.items()), first, first + len(fitting)))
