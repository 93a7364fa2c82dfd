"""common/id_secret.py: the secret for row ids from a variable, or from a file that a variable names."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.runs import BREAST_CANCER

from cutlayer import local
from cutlayer.common.config import RunFile
from cutlayer.common.errors import ConfigError
from cutlayer.common.id_secret import environment_secret


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that the environment names; it is not there yet."""
    path = tmp_path / "secret"
    monkeypatch.delenv("CUTLAYER_ID_SECRET", raising=False)
    monkeypatch.setenv("CUTLAYER_ID_SECRET_FILE", str(path))
    return path


def test_no_secret_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUTLAYER_ID_SECRET", raising=False)
    monkeypatch.delenv("CUTLAYER_ID_SECRET_FILE", raising=False)
    assert environment_secret() == ""


def test_a_file_and_the_same_words_in_the_variable_are_one_secret(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("  of the file \n")
    section = RunFile.model_validate(BREAST_CANCER).label_section()
    from_file = section.shared_secret()
    monkeypatch.setenv("CUTLAYER_ID_SECRET", "of the file")
    monkeypatch.delenv("CUTLAYER_ID_SECRET_FILE")
    assert from_file == section.shared_secret() == b"of the file"


def test_the_variable_comes_before_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("of the file")
    monkeypatch.setenv("CUTLAYER_ID_SECRET", "of the variable")
    assert environment_secret() == "of the variable"


@pytest.mark.parametrize(("content", "words"), [(None, "No such file"), (b" \n", "is empty"), (b"\xff", "no text")])
def test_a_file_without_a_secret_is_the_users_error(file: Path, content: bytes | None, words: str) -> None:
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=words) as refusal:
        environment_secret()
    assert str(file) in str(refusal.value)


def test_run_takes_the_secret_of_the_file_and_makes_up_none(file: Path) -> None:
    file.write_text("of the file")
    assert local._made_up_secret(RunFile.model_validate(BREAST_CANCER)) == {}
