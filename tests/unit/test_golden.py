"""What an earlier version has sent and saved means the same today.

After a change that breaks it on purpose, make a new version folder in tests/golden, and keep the old one where it can
still be read. RECORD_GOLDEN=1 records the present one anew.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from support.golden import NAMES, PARTIES, STEP, begin_from_checkpoints, history_of, of_kind, record, run_file_of
from support.threads import SECRET

from cutlayer.common import alignment
from cutlayer.common.handshake import Terms, check_terms
from cutlayer.common.history import LinkState
from cutlayer.common.schedule import Schedule
from cutlayer.common.tensors import MatrixReader, matrices_digest
from cutlayer.common.wire import greeting_of
from cutlayer.label_party.row_messages import read_announcement, read_ids
from cutlayer.label_party.session import AnswerAgain, Compute, LabelPartyLink
from cutlayer.nonlabel_party.answers import read_held
from cutlayer.nonlabel_party.session import NonlabelPartyLink

pytestmark = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(autouse=True)
def recorded(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    if os.environ.get("RECORD_GOLDEN"):
        record(name, tmp_path_factory.mktemp("golden"))


def replay_alignment(name: str) -> tuple[Terms, Schedule]:
    """AlignRows as both sides see it; what they agree on."""
    frames, job = history_of(name), run_file_of(name).job
    requests = of_kind(frames, "AlignRowsRequest")
    greeting = greeting_of(next(requests).hello)
    terms = Terms("lab", job.digest(), job.cut_layer.width_of("lab"), None, None)
    check_terms(greeting, terms)
    ids = read_ids(read_announcement(requests, SECRET.encode()), requests, greeting.durable_steps)
    answers = of_kind(frames, "AlignRowsResponse")
    held = read_held(lambda: next(answers), len(ids.digests), greeting.durable_steps)
    assert (held.form, held.resume_step, held.labels) == (alignment.IdForm.TEXT, 0, {})
    assert [*requests, *answers] == []
    rows = alignment.rows_digest(ids.digests[held.mask])
    schedule = Schedule(job.seed, int(held.mask.sum()), job.test_fraction, job.batch_size, job.epochs)
    return Terms("lab", job.digest(), terms.cut_width, int(held.mask.sum()), rows), schedule


def matrix_digest(name: str, matrix: Any, rows: int) -> bytes:
    job = run_file_of(name).job
    reader = MatrixReader(rows, job.cut_layer.width_of("lab"), job.cut_layer.encoding)
    assert reader.add(matrix)
    assert reader.tensor().isfinite().all()
    return reader.digest()


def test_P19_a_recorded_run_is_accepted_and_has_the_same_history(name: str) -> None:
    terms, schedule = replay_alignment(name)
    frames = history_of(name)
    requests, responses = of_kind(frames, "TrainRequest"), of_kind(frames, "TrainResponse")
    label = LabelPartyLink[Any](terms, schedule.steps)
    lab = NonlabelPartyLink(terms, schedule.steps)
    greeting, welcome = greeting_of(next(requests).hello), next(responses).welcome
    assert label.on_greeting(greeting) == welcome.next_step == 1
    assert greeting.history == lab.history
    lab.on_welcome((welcome.protocol_major, welcome.protocol_minor), welcome.next_step)
    for step in range(1, schedule.steps + 1):
        z, g = next(requests).activation, next(responses).answer
        rows = len(schedule.rows_of(step))
        z_digest = matrix_digest(name, z.matrix, rows)
        assert lab.activation(step, z_digest) == z.history
        expected = schedule.rows_digest(step)
        assert label.on_activation(z.step, z_digest, z.rows_digest, z.history, expected) == Compute(step)
        training = schedule.at(step).kind == "train"
        assert g.HasField("gradient") == training
        g_digest = matrix_digest(name, g.gradient, rows) if training else matrices_digest([])
        assert label.seal(step, g_digest) == g.history
        label.answered(step, g)
        assert label.on_activation(z.step, z_digest, z.rows_digest, z.history, expected) == AnswerAgain(step, g)
        lab.on_answer(g.step, g.history, g_digest)
        lab.applied(step)
        assert g.checkpoint == (step % 4 == 0 or step == schedule.steps)
    assert [*requests, *responses] == []
    assert label.finished
    assert lab.state() == label.state() == LinkState(schedule.steps, g.history)


def test_P19_no_field_of_a_recorded_frame_is_unknown(name: str) -> None:
    for frame in history_of(name):
        message = frame.parse()
        message.DiscardUnknownFields()
        assert message.SerializeToString(deterministic=True) == frame.data


def test_P20_a_run_goes_on_from_recorded_checkpoints(name: str, tmp_path: Path) -> None:
    outcome = begin_from_checkpoints(name, tmp_path).wait().require_success()
    assert f"all parties go on from the checkpoint of step {STEP}" in outcome.log("label_party")
    assert f"going on from the checkpoint of step {STEP}" in outcome.log("lab")
    for party in PARTIES:
        assert "damaged" not in outcome.log(party)
        assert outcome.weights(party)
