"""Links that hold in the repository hold in the site."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts" / "site"))
from links import relink  # noqa: E402


@pytest.mark.parametrize(
    ("uri", "link", "expected"),
    [
        ("models/rnng.md", "[a](../training.md#vocabularies)", "[a](../training.md#vocabularies)"),
        ("exit-codes.md", "[a](../CHANGELOG.md)", "[a](project/changelog.md)"),
        ("project/contributing.md", "[a](docs/models/rnng.md#x)", "[a](../models/rnng.md#x)"),
        ("project/contributing.md", "[a](tests/README.md)", "[a](tests.md)"),
        ("project/tests.md", "[a](../README.md)", "[a](../README.md)"),
        ("explorer.md", "[`explorer/`](../src/treelm/explorer/)", "`explorer/`"),
        ("explorer.md", "![a](pictures/explorer.png)", "![a](pictures/explorer.png)"),
        ("explorer.md", "[a](https://example.org/x) [b](#top)", "[a](https://example.org/x) [b](#top)"),
        ("explorer.md", "`[a](../src/treelm/)`", "`[a](../src/treelm/)`"),
        ("explorer.md", "```\n[a](../src/treelm/)\n```", "```\n[a](../src/treelm/)\n```"),
    ],
)
def test_a_link_leads_where_it_leads_in_the_repository(uri: str, link: str, expected: str) -> None:
    assert relink(link, uri, root=ROOT, repository=None) == expected


def test_code_is_linked_where_there_is_a_repository() -> None:
    made = relink("[a](../src/treelm/errors.py)", "explorer.md", root=ROOT, repository="https://example.org/treelm/")
    assert made == "[a](https://example.org/treelm/blob/main/src/treelm/errors.py)"
