import pytest

from trainwright.cluster.images.registry.authentication import Challenge, read_challenges


@pytest.mark.parametrize(
    ("headers", "challenge"),
    [
        (['Bearer realm="https://a/t",service="s",scope="x:y:z"'], Challenge("Bearer", "https://a/t", "s")),
        (["bearer realm=https://a/t"], Challenge("Bearer", "https://a/t")),
        (['Basic realm="x"', 'Bearer realm="https://a/t"'], Challenge("Bearer", "https://a/t")),
        (['Basic realm="x"'], Challenge("Basic")),
        (["Negotiate"], None),
        (["Bearer"], None),
        ([""], None),
        ([], None),
    ],
)
def test_challenges_of_registries(headers: list[str], challenge: Challenge | None) -> None:
    assert read_challenges(headers) == challenge
