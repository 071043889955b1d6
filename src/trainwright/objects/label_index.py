"""Indexes of labels and of selectors such as those of Services, so that a change is compared with few objects.

There are hundreds of Services and pods, and they change many times a second.
"""

from collections.abc import Mapping

_Label = tuple[str, str, str]
"""Namespace, key and value."""


def selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """An empty selector selects nothing."""
    return bool(selector) and all(labels.get(key) == value for key, value in selector.items())


class LabelIndex:
    """Finds the objects that a selector selects. It looks only at those that have its rarest label."""

    def __init__(self) -> None:
        self._labels: dict[str, tuple[str, Mapping[str, str]]] = {}
        self._by_label: dict[_Label, dict[str, None]] = {}

    def put(self, key: str, namespace: str, labels: Mapping[str, str]) -> None:
        self.discard(key)
        self._labels[key] = (namespace, labels)
        for label in labels.items():
            self._by_label.setdefault((namespace, *label), {})[key] = None

    def discard(self, key: str) -> None:
        namespace, labels = self._labels.pop(key, ("", {}))
        for label in labels.items():
            _remove(self._by_label, (namespace, *label), key)

    def selected(self, namespace: str, selector: Mapping[str, str]) -> list[str]:
        candidates = (self._by_label.get((namespace, *label), {}) for label in selector.items())
        fewest: dict[str, None] = min(candidates, key=len, default={})
        return [key for key in fewest if selects(selector, self._labels[key][1])]


class SelectorIndex:
    """Finds the selectors that select an object. Each is filed under one label, where the fewest others are."""

    def __init__(self) -> None:
        self._filed: dict[str, tuple[_Label, Mapping[str, str]]] = {}
        self._by_label: dict[_Label, dict[str, None]] = {}

    def put(self, key: str, namespace: str, selector: Mapping[str, str]) -> None:
        self.discard(key)
        if not selector:
            return
        labels = [(namespace, *label) for label in selector.items()]
        rarest = min(labels, key=lambda label: len(self._by_label.get(label, ())))
        self._filed[key] = (rarest, selector)
        self._by_label.setdefault(rarest, {})[key] = None

    def discard(self, key: str) -> None:
        if found := self._filed.pop(key, None):
            _remove(self._by_label, found[0], key)

    def selecting(self, namespace: str, labels: Mapping[str, str]) -> list[str]:
        return [
            key
            for label in labels.items()
            for key in self._by_label.get((namespace, *label), ())
            if selects(self._filed[key][1], labels)
        ]


def _remove(by_label: dict[_Label, dict[str, None]], label: _Label, key: str) -> None:
    keys = by_label[label]
    keys.pop(key, None)
    if not keys:
        del by_label[label]
