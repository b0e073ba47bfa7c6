"""Programs outside of the package: scripts as modules, and R."""

import os
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

REPOSITORY = Path(__file__).parent.parent
SCRIPTS = REPOSITORY / "scripts"


def environment(**changes: str) -> dict[str, str]:
    """The environment of processes that find the package and the tests."""
    paths = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "src")])
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", **changes}


def load_program(path: Path) -> ModuleType:
    """Import a file by its path; nothing is written beside it."""
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    spec.loader.exec_module(module)
    sys.dont_write_bytecode = before
    return module


def r_has(*packages: str) -> bool:
    """Tell whether R is there with these packages."""
    if shutil.which("Rscript") is None:
        return False
    asked = "; ".join(f"library({package})" for package in packages)
    return subprocess.run(["Rscript", "-e", asked], capture_output=True, check=False).returncode == 0
