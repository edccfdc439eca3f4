"""Installs `clients/airflow` with pip into the Python environments given, as its users do.

Nothing is done for an environment whose copy was made of the sources as they are now. So this can be
called before every test: none ever runs an outdated copy.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).parents[2] / "clients" / "airflow"
PACKAGE = "transom_airflow"
# : Files in an environment: the digest of the installed sources, and the lock for their
# replacement.
STAMP, LOCK = "transom-airflow.sha256", "transom-airflow.lock"


def sources() -> dict[str, bytes]:
    """The contents of the distribution's source files, by path."""
    package = PROJECT / "src" / PACKAGE
    files = [PROJECT / "pyproject.toml", PROJECT / "README.md"]
    files += [file for file in package.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    return {str(file.relative_to(PROJECT)): file.read_bytes() for file in sorted(files)}


def digest(files: dict[str, bytes]) -> str:
    """A digest of paths and contents."""
    found = hashlib.sha256()
    for path, content in files.items():
        found.update(f"{path} {len(content)}\n".encode() + content)
    return found.hexdigest()


def is_installed(environment: Path, files: dict[str, bytes]) -> bool:
    """Whether an environment has these files, according to its stamp and to the files themselves."""
    stamp = environment / STAMP
    if not stamp.exists() or stamp.read_text() != digest(files):
        return False
    for folder in environment.glob("lib/python3.*/site-packages"):
        copy = {
            f"src/{file.relative_to(folder)}": file.read_bytes()
            for file in (folder / PACKAGE).rglob("*")
            if file.is_file() and "__pycache__" not in file.parts
        }
        return copy == {path: content for path, content in files.items() if path.startswith("src/")}
    return False


def pip(environment: Path, *arguments: str | Path) -> None:
    """Runs the pip of an environment."""
    command = [
        environment / "bin" / "python",
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        *arguments,
    ]
    subprocess.run(command, check=True)


def wheel(environment: Path, files: dict[str, bytes], folder: Path) -> Path:
    """Builds the distribution from a copy of its sources, so that no build output stays among them."""
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    new_enough = "import setuptools, sys; sys.exit(int(setuptools.__version__.split('.')[0]) < 77)"
    known = subprocess.run(
        [environment / "bin" / "python", "-c", new_enough], check=False, capture_output=True
    )
    # Without it pip has to download the build tools for each build.
    isolation = ["--no-build-isolation"] if known.returncode == 0 else []
    pip(environment, "wheel", "--no-deps", *isolation, "--wheel-dir", folder / "dist", folder)
    [built] = (folder / "dist").glob("*.whl")
    return built


def install(environment: Path) -> None:
    """Replaces an environment's copy if it is outdated."""
    with (environment / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        files = sources()
        if is_installed(environment, files):
            return
        (environment / STAMP).unlink(missing_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="transom-airflow-"))
        try:
            built = wheel(environment, files, folder)
            pip(environment, "install", "--no-deps", "--no-index", "--force-reinstall", built)
        finally:
            shutil.rmtree(folder)
        (environment / STAMP).write_text(digest(files))
        if not is_installed(environment, files):
            sys.exit(f"{environment} has another {PACKAGE} than {PROJECT}; remove it and try again")
        print(f"installed {built.name} into {environment}")


for name in sys.argv[1:]:
    install(Path(name))
