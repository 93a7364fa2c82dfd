"""A curious client cannot take the noise off: not by replaying a step (P16), not from what it knows (P17)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
import torch
from support.forked import Forked
from support.runs import Run, changed, free_port, write
from support.scripted import SECRET, ScriptedClient, label_party

from cutlayer.common.randomness import Noise, public_key
from cutlayer.common.tensors import MatrixReader
from cutlayer.v1 import training_pb2

WIDTH = 8
TIMEOUTS = {"stall_s": 5, "reconnect_s": 2, "goodbye_s": 1}


def make_run(secret: Path) -> Run:
    return {
        "job": {"name": "secrecy", "epochs": 1, "batch_size": 64, "cut_layer": {"width": WIDTH}, "parties": ["lab"]},
        "label_party": {
            "listen": "127.0.0.1:0",
            "data": {"source": "breast_cancer", "columns": "labels"},
            "defense": {"name": "iso", "t": 100.0},
            "noise_secret": str(secret),
            "timeouts": TIMEOUTS,
        },
    }


def gradient(raw: bytes) -> torch.Tensor:
    """The numbers in the raw bytes of an answer."""
    matrix = training_pb2.TrainResponse.FromString(raw).answer.gradient
    reader = MatrixReader(matrix.rows, WIDTH, "float32")
    reader.add(matrix)
    return reader.tensor()


def first_answers(folder: Path, secret: Path, zs: list[torch.Tensor | None]) -> tuple[ScriptedClient, list[bytes]]:
    """What a client gets that sends each of `zs` as its first step, in streams of its own; then it vanishes."""
    run = make_run(secret)
    answers: list[bytes] = []
    with label_party(folder, run) as address:
        client = ScriptedClient(address, run)
        client.align()
        for z_Bd in zs:
            frames = client.call("Train", client.hello(), client.activation(1, z_Bd))
            answers += [frame for frame in frames if training_pb2.TrainResponse.FromString(frame).HasField("answer")]
        client.channel.close()
    return client, answers


def secret_file(folder: Path, byte: int) -> Path:
    path = folder / f"secret-{byte}"
    path.write_bytes(bytes([byte]) * 32)
    return path


def test_P16_a_replayed_step_gets_the_same_bytes_and_so_no_average_helps(tmp_path: Path) -> None:
    _, answers = first_answers(tmp_path / "run", secret_file(tmp_path, 1), [None] * 100)
    assert len(answers) == 100
    assert len(set(answers)) == 1


def test_P16_another_z_at_an_answered_step_is_refused(tmp_path: Path) -> None:
    others = [torch.full((64, WIDTH), float(value)) for value in range(20)]
    client, answers = first_answers(tmp_path / "run", secret_file(tmp_path, 1), [None, *others])
    assert len(answers) == 1
    ends = [item for kind, item in client.received if kind == "Train ended"]
    assert [code for code, _, _ in ends[1:]] == [grpc.StatusCode.FAILED_PRECONDITION] * len(others)


def test_P16_an_almost_equal_z_in_a_new_session_gets_unrelated_noise(tmp_path: Path) -> None:
    """So the difference of two answers is no noise taken off: it is noise of twice the power."""
    secret = secret_file(tmp_path, 1)
    z_Bd = torch.randn(64, WIDTH, generator=torch.Generator().manual_seed(5))
    nudged_Bd = z_Bd.clone()
    nudged_Bd[0, 0] += 1e-6
    _, (one,) = first_answers(tmp_path / "a", secret, [z_Bd])
    _, (again,) = first_answers(tmp_path / "b", secret, [z_Bd])
    _, (other,) = first_answers(tmp_path / "c", secret, [nudged_Bd])
    assert torch.equal(gradient(one), gradient(again))
    assert abs(np.corrcoef(gradient(one).flatten(), gradient(other).flatten())[0, 1]) < 0.2


class Killed:
    """A label party with a noise secret that it makes itself, as a process that can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        own = {
            "job.checkpoint": {"every_steps": 1000},
            "label_party.noise_secret": None,
            "label_party.id_secret": SECRET,
        }
        self.run = changed(make_run(folder), own)
        self._folder, self._file = folder, write(folder, self.run)
        self._running: list[Forked] = []

    def start(self, out: str) -> ScriptedClient:
        """With results in folder `out`; what was started before is killed. A client of it."""
        self.kill()
        address = f"127.0.0.1:{free_port()}"
        command = ("label-party", self._file, "--listen", address, "--out", self._folder / out)
        self._running.append(Forked(*command, output=self._folder / f"{len(self._running)}.txt"))
        self.last.await_words("listening on")
        return ScriptedClient(address, self.run)

    @property
    def last(self) -> Forked:
        """What was started last."""
        return self._running[-1]

    def kill(self) -> None:
        for process in self._running:
            process.kill()


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[Killed]:
    """None runs any more in the end."""
    party = Killed(tmp_path)
    yield party
    party.kill()


def early_answers(client: ScriptedClient, durable_steps: tuple[int, ...] = ()) -> list[bytes]:
    """The label party's messages of the first steps."""
    client.align(durable_steps)
    for step in range(1, 5):
        client.take_step(step)
    client.channel.close()
    return [message for kind, message in client.received if kind == "Train"]


def refused(client: ScriptedClient, durable_steps: tuple[int, ...]) -> str:
    """Why a client that holds these checkpoints is not admitted."""
    client.align(durable_steps)
    code, words, _ = client.received[-1][1]
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    client.channel.close()
    return str(words)


@pytest.mark.slow
def test_P16_a_label_party_that_was_killed_early_gives_the_same_answers_again(killed: Killed) -> None:
    answers = early_answers(killed.start("out"))
    assert len(answers) == 8  # with a welcome each
    assert early_answers(killed.start("out"), (0,)) == answers
    assert early_answers(killed.start("another run")) != answers  # for whoever holds no checkpoint: see below


@pytest.mark.slow
@pytest.mark.parametrize("at", ["answered", "aligned"])
def test_P16_a_label_party_that_was_killed_early_answers_nothing_with_another_folder(killed: Killed, at: str) -> None:
    client = killed.start("out")
    early_answers(client) if at == "answered" else client.align()
    words = refused(killed.start("elsewhere"), (0,))
    assert "party 'lab' has saved step 0 of this run, of which the label party's folder knows nothing" in words
    assert "start the label party with the --out DIR that it began with" in words
    assert "give another --out DIR at every party, and the job another `seed`" in words
    if at == "answered":
        words = refused(killed.start("out"), ())  # nor may the party have lost its own
        assert "party 'lab' comes without a checkpoint of this run, which has saved step 0" in words


@pytest.mark.slow
def test_P16_another_noise_secret_than_that_of_the_answers_is_refused(killed: Killed, tmp_path: Path) -> None:
    early_answers(killed.start("out"))
    secret = tmp_path / "out" / "label_party" / "noise_secret"
    first = secret.read_bytes()
    for lose in (lambda: secret.write_bytes(bytes(32)), secret.unlink):
        lose()
        killed.start("out").align((0,))
        status, output = killed.last.finish()
        assert status == 2
        assert "the noise secret is not the one that the run began with" in output
        assert "bring back label_party/noise_secret" in output
    secret.write_bytes(first)
    early_answers(killed.start("out"), (0,))


def test_P17_the_noise_does_not_follow_from_the_job_file(tmp_path: Path) -> None:
    """Two runs of one job file with secrets of their own: the clean gradients are equal, the noise is unrelated."""
    z_Bd = torch.zeros(64, WIDTH)
    (one, other) = (
        gradient(first_answers(tmp_path / str(n), secret_file(tmp_path, n), [z_Bd])[1][0]).double() for n in (1, 2)
    )
    correlation = np.corrcoef(one.flatten(), other.flatten())[0, 1]
    assert abs(correlation) < 0.2  # all but a hundredth of the power is noise


def test_P17_keys_made_of_public_values_do_not_reproduce_the_noise(tmp_path: Path) -> None:
    """What an attacker would try: the right construction keyed with what the run file tells."""
    secret = secret_file(tmp_path, 1)
    client, answers = first_answers(tmp_path / "run", secret, [None])
    g_Bd = gradient(answers[0])
    activation = client.activation(1)
    reader = MatrixReader(64, WIDTH, "float32")
    reader.add(activation.activation.matrix)
    guesses = [public_key(*parts) for parts in ((), (0,), ("noise", 0), (client.job.digest(),), ("secrecy",))]
    guesses += [bytes(32), client.job.digest()]
    for key in guesses:
        noise = Noise.keyed(key, "lab", 1, reader.digest()).normal((64, WIDTH))
        assert abs(np.corrcoef(g_Bd.flatten(), noise.flatten())[0, 1]) < 0.2
    true = Noise.keyed(secret.read_bytes(), "lab", 1, reader.digest()).normal((64, WIDTH))
    assert np.corrcoef(g_Bd.flatten(), true.flatten())[0, 1] > 0.8  # the test can tell


def test_P17_a_made_secret_is_private_and_differs_from_run_to_run(tmp_path: Path) -> None:
    paths = [tmp_path / name / "secret" for name in ("a", "b")]
    for path in paths:
        path.parent.mkdir()
        first_answers(path.parent / "run", path, [None])
    secrets = [path.read_bytes() for path in paths]
    assert secrets[0] != secrets[1]
    assert {len(secret) for secret in secrets} == {32}
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in paths)
    for path, secret in zip(paths, secrets, strict=True):
        for file in (path.parent / "run").rglob("*"):
            if file.is_file():
                data = file.read_bytes()
                assert secret not in data
                assert secret.hex().encode() not in data
