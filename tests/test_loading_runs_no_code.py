"""What is read from files never runs: no pickle is opened anywhere, and nothing is evaluated."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import treelm

SOURCE = Path(treelm.__file__).parent
UNSAFE_MODULES = {"pickle", "dill", "joblib", "shelve", "marshal", "cloudpickle", "jsonpickle", "yaml"}
UNSAFE_CALLS = {"eval", "exec", "os.system", "os.popen"}
KEYWORDS = {"torch.load": ("weights_only", True), "np.load": ("allow_pickle", False)}


def problems(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [name.name for name in node.names]
            yield from (name for name in names if name.partition(".")[0] in UNSAFE_MODULES)
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in UNSAFE_CALLS or any(keyword.arg == "shell" for keyword in node.keywords):
                yield name
            if name in KEYWORDS:
                keyword, value = KEYWORDS[name]
                given = {one.arg: one.value for one in node.keywords}
                if not (isinstance(given.get(keyword), ast.Constant) and given[keyword].value is value):  # type: ignore[attr-defined]
                    yield f"{name} without {keyword}={value}"


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_module_opens_what_can_run(path: Path) -> None:
    assert not list(problems(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import loads",
        "import torch; torch.load('x')",
        "import torch; torch.load('x', weights_only=False)",
        "np.load('x')",
        "np.load('x', allow_pickle=True)",
        "eval('1')",
        "subprocess.run('ls', shell=True)",
    ],
)
def test_the_search_finds_what_it_looks_for(code: str) -> None:
    assert list(problems(code))
