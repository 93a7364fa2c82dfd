"""common/job_keys.py: every key that differs is named, no value is shown, and who lacks the secret learns nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.runs import BREAST_CANCER, changed

from cutlayer import __version__
from cutlayer.common.config import RunFile
from cutlayer.common.errors import FrameError, SkewError
from cutlayer.common.handshake import PROTOCOL, Greeting, Terms, check_terms
from cutlayer.common.job import Job
from cutlayer.common.job_keys import MAX_KEYS, JobKeys, differing_keys
from cutlayer.common.wire import greeting_of, hello_of

SECRET = b"shared"
FULL = changed(
    BREAST_CANCER,
    {
        "job.parties": ["lab", "bank"],
        "job.cut_layer": {"width": 8, "aggregation": "concat", "widths": {"lab": 4}},
        "job.knowledge": {"lab": {"clean_positive_gradient": True}},
        "job.checkpoint": {"every_steps": 7},
    },
)


def job_of(changes: dict[str, Any]) -> Job:
    return RunFile.model_validate(changed(FULL, changes)).job


def keys_of(job: Job, secret: bytes = SECRET) -> JobKeys:
    return JobKeys.of(job.model_dump(mode="json"), secret)


def refusal(ours: Job, theirs: Job, *, secret: bytes = SECRET) -> str:
    """What the label party says to a party with another job, through the wire."""
    terms = Terms("lab", ours.digest(), 8, None, None, keys_of(ours))
    greeting = Greeting(
        PROTOCOL, __version__, "lab", theirs.digest(), 8, None, None, 0, b"", (), keys_of(theirs, secret)
    )
    with pytest.raises(SkewError) as caught:
        check_terms(greeting_of(hello_of(greeting)), terms)
    return str(caught.value)


EACH: dict[str, dict[str, Any]] = {
    "job.name": {"job.name": "other"},
    "job.task": {"job.task": "multiclass", "job.classes": 2, "job.knowledge": {"lab": {}}},
    "job.classes": {"job.task": "multiclass", "job.classes": 3, "job.knowledge": {"lab": {}}},
    "job.epochs": {"job.epochs": 3},
    "job.batch_size": {"job.batch_size": 63},
    "job.seed": {"job.seed": 8},
    "job.test_fraction": {"job.test_fraction": 0.25},
    "job.cut_layer.width": {"job.cut_layer.width": 9},
    "job.cut_layer.widths.lab": {"job.cut_layer.widths": {"lab": 5}},
    "job.cut_layer.widths.bank": {"job.cut_layer.widths": {"lab": 4, "bank": 5}},
    "job.cut_layer.aggregation": {"job.cut_layer.aggregation": "sum", "job.cut_layer.widths": {}},
    "job.cut_layer.encoding": {"job.cut_layer.encoding": "float16"},
    "job.parties": {"job.parties": ["bank", "lab"]},
    "job.privacy.share_metrics": {"job.privacy": {"share_metrics": True}},
    "job.knowledge.lab.clean_positive_gradient": {"job.knowledge": {"lab": {"clean_positive_gradient": False}}},
    "job.checkpoint.every_steps": {"job.checkpoint": {"every_steps": 8}},
    "job.checkpoint.every_seconds": {"job.checkpoint": {"every_seconds": 8.0}},
    "job.checkpoint.keep": {"job.checkpoint": {"every_steps": 7, "keep": 4}},
}


def test_P11_each_key_of_the_job_is_in_the_table() -> None:
    assert {*keys_of(job_of({})).digests, "job.cut_layer.widths.bank"} == set(EACH)


@pytest.mark.parametrize("key", EACH)
def test_P11_each_key_that_differs_is_named(key: str) -> None:
    ours, theirs = job_of({}), job_of(EACH[key])
    text = refusal(ours, theirs)
    assert text.startswith("the `job` sections differ in ")
    assert key in text.removeprefix("the `job` sections differ in ").partition(";")[0].split(", ")
    assert text.endswith(
        f"make that section the same in the run files of the label party and party 'lab' (cutlayer {__version__})"
    )
    assert key in differing_keys(keys_of(theirs), keys_of(ours))


def test_P11_only_the_keys_that_differ_are_named() -> None:
    assert "differ in job.cut_layer.width, job.seed; make" in refusal(
        job_of({}), job_of({"job.seed": 8, "job.cut_layer.width": 9})
    )
    assert differing_keys(keys_of(job_of({})), keys_of(job_of({}))) == []


def test_P11_many_keys_are_counted() -> None:
    parties = [f"p{number}" for number in range(20)]
    changes = {"job.parties": parties, "job.cut_layer.widths": {}, "nonlabel_parties": None}
    ours = job_of(changes | {"job.knowledge": {}})
    theirs = job_of(changes | {"job.knowledge": {name: {"clean_positive_gradient": True} for name in parties}})
    assert "clean_positive_gradient and 12 more; make that section" in refusal(ours, theirs)


def test_without_the_same_secret_no_key_is_named() -> None:
    text = refusal(job_of({}), job_of({"job.seed": 8}), secret=b"guessed")
    assert "so do the id secrets" in text
    assert "job." not in text


def test_no_value_can_be_told_from_a_digest_without_the_secret() -> None:
    ours, again, guessed = keys_of(job_of({})), keys_of(job_of({})), keys_of(job_of({}), b"guessed")
    assert ours == again
    assert not set(ours.digests.values()) & set(guessed.digests.values())
    assert len(set(ours.digests.values())) == len(ours.digests)  # of equal values too


def test_a_peer_without_keys_gets_the_plain_refusal() -> None:
    terms = Terms("lab", b"j" * 32, 8, None, None, keys_of(job_of({})))
    greeting = Greeting(PROTOCOL, __version__, "lab", b"k" * 32, 8, None, None, 0, b"")
    with pytest.raises(SkewError, match="the `job` sections differ; make that section the same"):
        check_terms(greeting_of(hello_of(greeting)), terms)


GOOD = keys_of(job_of({}))
HOSTILE: dict[str, tuple[JobKeys, str]] = {
    "too many": (
        replace(GOOD, digests={f"job.k{n}": b"d" * 16 for n in range(MAX_KEYS + 1)}),
        f"digests of {MAX_KEYS + 1} keys of the job, expected at most {MAX_KEYS}",
    ),
    "a million": (replace(GOOD, digests={f"job.{n}": b"" for n in range(10**6)}), "digests of 1000000 keys"),
    "long key": (replace(GOOD, digests={"job." + "k" * 251: b"d" * 16}), "a key of the job that no run file can have"),
    "control characters": (replace(GOOD, digests={"job.\x1b[2J": b"d" * 16}), "that no run file can have"),
    "other section": (replace(GOOD, digests={"label_party.seed": b"d" * 16}), "that no run file can have"),
    "short digest": (replace(GOOD, digests={"job.seed": b"d" * 15}), "a key of the job: expected 16 bytes"),
    "no check": (replace(GOOD, check=b""), "a key of the job: expected 16 bytes"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_P14_hostile_keys_are_refused(case: str) -> None:
    keys, message = HOSTILE[case]
    greeting = Greeting(PROTOCOL, __version__, "lab", b"j" * 32, 8, None, None, 0, b"", (), keys)
    with pytest.raises(FrameError, match=message) as caught:
        greeting_of(hello_of(greeting))
    assert len(str(caught.value)) < 200


def test_more_keys_than_can_be_sent_are_not_sent() -> None:
    assert keys_of(job_of({})).digests
    assert JobKeys.of({f"k{number}": 1 for number in range(MAX_KEYS + 1)}, SECRET).digests == {}
