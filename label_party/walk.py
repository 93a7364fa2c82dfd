"""The walk of one mini-batch as the label party sees it: collect, train, answer, audit, report; save where due."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cutlayer.common.checkpoints import Checkpoint, CheckpointStore
from cutlayer.common.job import Job
from cutlayer.common.process import end_requested, whole_step
from cutlayer.common.schedule import Step
from cutlayer.common.telemetry import Telemetry
from cutlayer.label_party.metrics import LabelPartyMetrics
from cutlayer.label_party.notices import Notices
from cutlayer.label_party.results import Figures, RunFigures
from cutlayer.label_party.saving import Cadence, content, restore
from cutlayer.label_party.server import LabelPartyServicer, PartyExchange
from cutlayer.label_party.training import LabelTraining, Received, Release, StepResult


@dataclass(frozen=True)
class _Taken:
    """What a step has made so far: what leaves for each party, and the result of training or the figures of a test."""

    releases: Mapping[str, Release]
    trained: StepResult | None = None
    test: Mapping[str, float | None] = field(default_factory=dict)


class Walk:
    """All steps from where the parties agreed to begin, to the last.

    Args:
        checkpoint: what all parties go on from; None for the beginning.

    Raises:
        CheckpointError: the checkpoint does not fit the models, or the noise secret is another one.
    """

    def __init__(
        self,
        job: Job,
        exchange: PartyExchange,
        servicer: LabelPartyServicer,
        training: LabelTraining,
        store: CheckpointStore,
        telemetry: Telemetry,
        metrics: LabelPartyMetrics,
        checkpoint: Checkpoint | None,
    ) -> None:
        self._job = job
        self._exchange = exchange
        self._servicer = servicer
        self.training = training
        self._store = store
        self._telemetry = telemetry
        self._metrics = metrics
        self._cadence = Cadence(job.checkpoint)
        self._notices = Notices(training)
        self.figures, self.links = restore(checkpoint, training) if checkpoint else (RunFigures(), {})
        self._done = checkpoint.step if checkpoint else 0
        self._saved = checkpoint.step if checkpoint else -1  # not even step 0
        self._inside_step = False
        self._ended = self._collected = 0.0  # when the step before ended, and when this one had come

    def run(self) -> None:
        """Take every step that is left; RolledBack where a party that was lost has come back."""
        self._telemetry.restart(self.figures.evaluations)
        self._metrics.begins(self._done)
        schedule = self.training.schedule
        self._ended = time.monotonic()
        for number in range(self._done + 1, schedule.steps + 1):
            received = {p: r for p, r in self._exchange.collect(number).items() if isinstance(r, Received)}
            self._collected = time.monotonic()
            with whole_step():
                self._step(schedule.at(number), received)
        self.figures.stop()

    def save_last_step(self) -> None:
        """Save the last step that was answered, or step 0, unless one is half done or that is saved already."""
        if not self._inside_step and self._done > self._saved:
            self._save(self._done)

    def _step(self, step: Step, received: Mapping[str, Received]) -> None:
        """The duties of a step, in the order that common/session.py gives them."""
        self._inside_step = True
        self.figures.start()
        taken = self._train_or_evaluate(step, received)
        due = self._due(step)
        answers = self._servicer.seal(step.number, taken.releases, checkpoint=due)
        self.links = self._servicer.saved_links()
        if due:
            evaluation = self._conclude(step, received, taken)
            self._save(step.number)
            self._report(step, evaluation)
        self._servicer.answered(step.number, answers, {party: r.z_digest for party, r in received.items()})
        self._exchange.publish(step.number, answers)
        if not due:  # the parties need not wait for this
            self._report(step, self._conclude(step, received, taken))
        self._done, self._inside_step = step.number, False

    def _train_or_evaluate(self, step: Step, received: Mapping[str, Received]) -> _Taken:
        if step.kind == "train":
            trained = self.training.step(step, received)
            return _Taken(trained.releases, trained)
        test = self.training.evaluate(step, received)
        shared = {k: v for k, v in test.items() if v is not None} if self._job.privacy.share_metrics else None
        return _Taken({party: Release(metrics=shared) for party in received}, test=test)

    def _conclude(self, step: Step, received: Mapping[str, Received], taken: _Taken) -> Figures | None:
        """Bring models, audit and figures to where they stand after `step`; the record of the epoch that it ends."""
        if taken.trained is not None:
            leak = self.training.conclude(step, received, taken.trained)
            self.figures.trained(len(step.rows), taken.trained.loss, leak, self.training)
        return self._end_epoch(step, taken.test)

    def _end_epoch(self, step: Step, test: Mapping[str, float | None]) -> Figures | None:
        if step.number % self.training.schedule.steps_per_epoch:
            return None
        return self.figures.end_epoch(step, test, self.training)

    def _due(self, step: Step) -> bool:
        last = step.number == self.training.schedule.steps
        return last or end_requested() or self._cadence.due(step.number)

    def _save(self, step: int) -> None:
        began = time.monotonic()
        self._servicer.sync_answered()
        self._store.save(step, *content(self.training, self.figures, self.links))
        self._metrics.saved(step, time.monotonic() - began)
        self._saved = step
        self._cadence.saved(began)

    def _report(self, step: Step, evaluation: Figures | None) -> None:
        before, self._ended = self._ended, time.monotonic()
        progress = self.figures.progress(step, self.training, self._job.epochs)
        seconds, waited = self._ended - before, self._collected - before
        self._telemetry.step(replace(progress, seconds=seconds, waited=waited))
        for text in self._notices.new(step.number):
            self._telemetry.warning(text)
        if evaluation is not None:
            self._telemetry.evaluation(evaluation)
            self._metrics.bound(self.training.bound.summary())
