"""`cutlayer run` from end to end: what it writes, what it says, and what it must not."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
import pytest
from support.runs import BREAST_CANCER, changed, cutlayer, summary, write

ID_SECRET = "4c1fd0b7-ids-of-this-run"
PLAIN = changed(
    BREAST_CANCER,
    {
        "job.knowledge": {"lab": {"clean_positive_gradient": True}},
        "nonlabel_parties.lab.attacks": ["norm", "cosine"],
        "label_party.id_secret": ID_SECRET,
        "nonlabel_parties.lab.id_secret": ID_SECRET,
    },
)


class Done(NamedTuple):
    """A run that has ended."""

    out: Path
    process: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """A run without a defense, with both attacks."""
    folder = tmp_path_factory.mktemp("plain")
    return Done(folder / "out", cutlayer("run", write(folder, PLAIN), "--out", folder / "out"))


def test_run_ends_well(plain: Done) -> None:
    assert plain.process.returncode == 0, plain.process.stdout + plain.process.stderr
    assert plain.process.stderr == ""


def test_output_is_plain_lines_with_a_closing_table(plain: Done) -> None:
    output = plain.process.stdout
    assert "\x1b" not in output
    assert "\r" not in output
    closing = output[output.index("leak AUC") :]
    for words in ("audit", "cosine", "first", "peak memory", "sent: activations", f"files: {plain.out}"):
        assert words in closing


def test_files_of_the_contract(plain: Done) -> None:
    expected = [
        "run.json",
        "summary.json",
        "metrics.jsonl",
        "label_party/log",
        "label_party/audit.parquet",
        "label_party/labels.parquet",
        "label_party/noise_secret",
        "label_party/model/model.safetensors",
        "label_party/model/manifest.json",
        "lab/log",
        "lab/model/model.safetensors",
        "lab/attacks/norm.parquet",
        "lab/attacks/cosine.parquet",
    ]
    assert [name for name in expected if not (plain.out / name).is_file()] == []
    events = list((plain.out / "label_party" / "tensorboard").glob("events.out.tfevents.*"))
    assert len(events) == 1
    assert events[0].stat().st_size > 0


def test_summary_keys(plain: Done) -> None:
    found = summary(plain.out)
    assert {
        *("schema", "job", "defense", "utility", "leak", "bound", "steps", "epochs", "rows", "seconds"),
        *("samples_per_second", "bytes", "parties"),
    } <= found.keys()
    assert found["utility"].keys() == {"test_auc", "test_loss", "train_loss", "test_accuracy"}
    assert found["bound"] is None
    assert found["steps"] == 16
    assert found["rows"] == 455
    assert found["bytes"]["activations"] == 2 * 569 * 8 * 4
    assert found["bytes"]["gradients"] == 2 * 455 * 8 * 4
    assert 0 < found["bytes"]["overhead"] < 20_000
    for party in ("label_party", "lab"):
        assert found["parties"][party]["peak_rss_bytes"] > 50e6


def test_every_party_is_a_process_of_its_own(plain: Done) -> None:
    parties = summary(plain.out)["parties"]
    assert len({parties[name]["pid"] for name in ("label_party", "lab")}) == 2


def test_without_a_defense_the_direction_tells_the_labels(plain: Done) -> None:
    leak = summary(plain.out)["leak"]
    assert leak["audit"]["cosine"]["cut"]["mean"] >= 0.999
    assert leak["attacks"]["lab"]["cosine"]["cut"]["mean"] >= 0.999
    assert leak["attacks"]["lab"].keys() == {"norm", "cosine"}
    assert leak["attacks"]["lab"]["cosine"].keys() == {"cut", "first"}


def test_metrics_have_a_line_for_each_epoch(plain: Done) -> None:
    lines = [json.loads(line) for line in (plain.out / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2]
    assert lines[-1]["test_auc"] == summary(plain.out)["utility"]["test_auc"]


def test_guesses_name_the_rows(plain: Done) -> None:
    table = pq.read_table(plain.out / "lab" / "attacks" / "norm.parquet")
    assert table.column_names == ["step", "layer", "row_id", "score"]
    assert set(table["row_id"].to_pylist()) <= {str(i) for i in range(569)}
    assert table.num_rows == 2 * 2 * 455  # epochs, layers


def test_private_things_are_private(plain: Done) -> None:
    for party in ("label_party", "lab"):
        assert (plain.out / party).stat().st_mode & 0o777 == 0o700
    assert (plain.out / "label_party" / "noise_secret").stat().st_mode & 0o777 == 0o600


def test_no_secret_in_any_file_or_output(plain: Done) -> None:
    keep = plain.out / "label_party" / "noise_secret"
    secret = keep.read_bytes()
    contents = {path: path.read_bytes() for path in plain.out.rglob("*") if path.is_file() and path != keep}
    contents[Path("output")] = (plain.process.stdout + plain.process.stderr).encode()
    assert len(contents) > 10
    for word in (secret, secret.hex().encode(), ID_SECRET.encode()):
        assert [str(path) for path, content in contents.items() if word in content.replace(b"\n", b"")] == []


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> list[Done]:
    """The same run twice, with a defense whose noise is keyed by the same secret."""
    folder = tmp_path_factory.mktemp("twins")
    (folder / "noise").write_bytes(bytes(range(32)))
    run = changed(PLAIN, {"label_party.defense": "marvell", "label_party.noise_secret": "noise"})
    path = write(folder, run)
    return [Done(folder / out, cutlayer("run", path, "--out", folder / out)) for out in ("first", "second")]


def test_same_seeds_and_secret_give_the_same_bits(twins: list[Done]) -> None:
    for done in twins:
        assert done.process.returncode == 0, done.process.stdout + done.process.stderr
    first, second = (done.out for done in twins)
    for party in ("label_party", "lab"):
        models = [out / party / "model" / "model.safetensors" for out in (first, second)]
        assert models[0].read_bytes() == models[1].read_bytes()
        histories = [json.loads((out / party / "party.json").read_text())["history"] for out in (first, second)]
        assert histories[0] == histories[1]
    assert (first / "metrics.jsonl").read_text() == (second / "metrics.jsonl").read_text()
    figures = [summary(out) for out in (first, second)]
    assert figures[0]["bound"].keys() >= {"per_step_leak_auc", "whole_run_leak_auc", "sum_kl"}
    for found in figures:
        for of_this_run in ("seconds", "samples_per_second", "parties"):
            del found[of_this_run]
    assert figures[0] == figures[1]


def test_a_noise_secret_of_ones_own_is_not_copied(twins: list[Done]) -> None:
    for done in twins:
        assert not (done.out / "label_party" / "noise_secret").exists()


def test_both_sides_have_the_same_history(plain: Done) -> None:
    history = {p: json.loads((plain.out / p / "party.json").read_text())["history"] for p in ("label_party", "lab")}
    assert history["label_party"] == {"lab": history["lab"]}
    assert re.fullmatch(r"[0-9a-f]{64}", history["lab"])
