"""What a kind says of itself."""

from trainwright.api.kinds import KINDS


def test_a_kind_has_the_article_of_its_spoken_name() -> None:
    assert {kind.with_article for kind in KINDS.values()} == {
        "a PyTorchJob", "a TFJob", "an MPIJob", "an XGBoostJob", "a PaddleJob", "a JAXJob",
    }  # fmt: skip
