"""What is found on a machine, and what is said to bite."""

import importlib.metadata
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement

from treelm.models import environment
from treelm.models.environment import Environment, examine
from treelm.models.layers.precision import rounds_operands

SOUND = Environment(
    versions={},
    extras={},
    processor={
        "machine": "x86_64",
        "torch_uses": "AVX2",
        "medium_rounds": False,
        "float32_gflops": 100.0,
        "bfloat16_gflops": 95.0,
    },
    threads={"cores": 4, "cores_of_container": None, "torch": 4},
    gpus={},
    memory={"available_gb": 8.0},
    limits={"open_files": 4096},
    places={name: {"path": name, "writable": True, "free_gb": 9.0} for name in ("cache", "temporary")},
    variables={},
)


def warning(found: Environment) -> str:
    (only,) = found.warnings()
    return only


def test_a_sound_machine_has_no_warnings() -> None:
    assert not list(SOUND.warnings())
    unknown = replace(SOUND, memory={"available_gb": None}, limits={"open_files": None})
    assert not list(unknown.warnings())


def test_default_kernels_are_a_warning_on_x86_alone() -> None:
    arm = {**SOUND.processor, "machine": "arm64", "torch_uses": "DEFAULT"}
    assert not list(replace(SOUND, processor=arm).warnings())


@pytest.mark.parametrize(
    ("section", "values", "found", "remedy"),
    [
        ("processor", {"medium_rounds": True}, "bfloat16", "training.precision"),
        ("processor", {"bfloat16_gflops": 50.0}, "2.0 times as fast in float32", 'training.precision = "fp32-fast"'),
        ("processor", {"torch_uses": "DEFAULT"}, "no vector instructions", "ATEN_CPU_CAPABILITY"),
        ("threads", {"torch": 5}, "5 threads on 4 cores", "OMP_NUM_THREADS=4"),
        ("threads", {"cores_of_container": 0.5}, "4 threads on 0.5 cores", "OMP_NUM_THREADS=1"),
        ("memory", {"available_gb": 0.5}, "0.5 GB of memory", "smaller batches"),
        ("limits", {"open_files": 256}, "256 files", "ulimit -n"),
    ],
)
def test_what_bites_is_said_with_a_remedy(section: str, values: dict[str, object], found: str, remedy: str) -> None:
    said = warning(replace(SOUND, **{section: {**getattr(SOUND, section), **values}}))
    assert found in said
    assert remedy in said


@pytest.mark.parametrize(("values", "found"), [({"writable": False}, "written"), ({"free_gb": 0.1}, "0.1 GB left")])
@pytest.mark.parametrize(("place", "remedy"), [("cache", "TREELM_CACHE"), ("temporary", "TMPDIR")])
def test_places_without_room_or_permission(place: str, remedy: str, values: dict[str, object], found: str) -> None:
    said = warning(replace(SOUND, places={**SOUND.places, place: {**SOUND.places[place], **values}}))
    assert place in said
    assert found in said
    assert remedy in said


def test_releases_that_are_not_allowed_or_not_there_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        environment, "_requirements", lambda extra="": [Requirement("torch<1"), Requirement("no-such-package>=2")]
    )
    old, missing = SOUND.warnings()
    assert old == f"torch is {importlib.metadata.version('torch')}, not <1: pip install 'torch<1'"
    assert missing == "no-such-package is not installed: pip install 'no-such-package>=2'"


def test_this_machine_is_described(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TREELM_CACHE", str(tmp_path / "not" / "yet"))
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    found = examine()
    assert found.versions["torch"] == importlib.metadata.version("torch")
    assert found.extras["nltk"].keys() == {"nltk"}
    assert found.extras["treelm-english"].keys() == {"treelm-english"}
    assert found.processor["medium_rounds"] is rounds_operands("medium")
    assert min(found.processor["float32_gflops"], found.processor["bfloat16_gflops"]) > 0
    assert found.threads["torch"] == torch.get_num_threads()
    assert len(found.gpus) == torch.cuda.device_count()
    assert found.variables["OMP_NUM_THREADS"] == "3"
    assert found.places["cache"]["path"] == str(tmp_path / "not" / "yet")
    assert found.places["cache"]["writable"] is True
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs a folder that no one can write to, such as /proc")
def test_a_cache_that_cannot_be_made_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREELM_CACHE", "/proc/treelm")
    assert "/proc/treelm (cache) cannot be written to: set TREELM_CACHE" in "\n".join(examine().warnings())


@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux tells of containers")
def test_a_container_s_share_of_the_processor_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(environment, "_CGROUP", tmp_path)
    assert examine().threads["cores_of_container"] is None
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "memory.max").write_text("3000000000\n")
    (tmp_path / "memory.current").write_text("1000000000\n")
    assert examine().threads["cores_of_container"] == 1.5
    assert examine().memory["available_gb"] <= 2.0
