"""The wheel: one top-level name, everything in it, and it works where another package has our folders' names."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support.runs import ROOT, environment

pytestmark = pytest.mark.slow

PACKAGES = (
    *("common", "common/datasets", "common/models"),
    *("label_party", "label_party/defenses", "nonlabel_party", "nonlabel_party/attacks"),
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder), "-q"]
    source = folder / "source"  # a build leaves files beside the sources, and takes up what an older one left
    shutil.copytree(
        ROOT,
        source,
        symlinks=True,
        ignore=shutil.ignore_patterns(".*", "build", "runs", "secrets", "wheels", "*.egg-info"),
    )
    _run(sys.executable, "-m", "pip", "wheel", *options, str(source))
    (built,) = folder.glob("cutlayer-*.whl")
    return built


def test_one_top_level_name_and_every_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    top = {name.partition("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"cutlayer"}
    for package in PACKAGES:
        assert f"cutlayer/{package}/__init__.py" in names
        modules = {path.name for path in (ROOT / package).glob("*.py")}
        assert {f"cutlayer/{package}/{module}" for module in modules} <= set(names)
    for expected in ("py.typed", "v1/training_pb2.py", "v1/training_pb2_grpc.py", "label_party/__main__.py"):
        assert f"cutlayer/{expected}" in names
    for expected in ("sweep/plugin_check.py", "report/page.html", "report/style.css", "report/script.js"):
        assert f"cutlayer/{expected}" in names


def test_installed_wheel_beside_other_packages_of_the_same_names(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    _run(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(site), str(wheel))
    elsewhere = tmp_path / "elsewhere"
    for name in ("common", "label_party", "nonlabel_party"):
        (elsewhere / name).mkdir(parents=True)
        (elsewhere / name / "__init__.py").write_text("raise ImportError('not the package you look for')\n")
    script = str(site / "bin" / "cutlayer")
    done = _run(sys.executable, script, "list", "defenses", cwd=elsewhere, PYTHONPATH=str(site))
    assert "marvell" in done.stdout


def _run(*command: str, cwd: Path | None = None, **extra: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, cwd=cwd, env=environment(**extra), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done
