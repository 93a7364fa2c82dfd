"""The steps of a run as a non-label party takes them: in order, reported, saved where due."""

from __future__ import annotations

import time

from cutlayer.common.checkpoints import CheckpointStore
from cutlayer.common.process import end_requested, whole_step
from cutlayer.common.schedule import Step
from cutlayer.common.telemetry import Progress, Telemetry
from cutlayer.nonlabel_party.client import LabelPartyClient
from cutlayer.nonlabel_party.saving import SavedStep, content
from cutlayer.nonlabel_party.walk import Walk


class Steps:
    """All steps from where the parties agreed to begin, to the last.

    Args:
        epochs: of the whole run.
        saved: the step that is done already.
    """

    def __init__(
        self,
        walk: Walk,
        client: LabelPartyClient,
        store: CheckpointStore,
        telemetry: Telemetry,
        epochs: int,
        saved: SavedStep,
    ) -> None:
        self.walk = walk
        self._client = client
        self._store = store
        self._telemetry = telemetry
        self._epochs = epochs
        self._saved = saved.step
        self._seconds_before = saved.seconds
        self._began: float | None = None

    @property
    def left(self) -> bool:
        """Whether there are steps after the last that is saved."""
        return self._saved < self.walk.schedule.steps

    @property
    def seconds(self) -> float:
        """Time since the first step, without what was lost by going back."""
        return self._seconds_before + (time.monotonic() - self._began if self._began else 0.0)

    def run(self) -> None:
        """Take every step that is left; RolledBack where all have to begin again."""
        self._began = ended = time.monotonic()
        schedule, traffic = self.walk.schedule, self._client.traffic
        for number in range(self._saved + 1, schedule.steps + 1):
            before, waited_before, step = ended, traffic.wait_seconds, schedule.at(number)
            with whole_step():
                answer = self.walk.step(step)
                if answer.checkpoint or end_requested():
                    self._save()
            ended = time.monotonic()
            self._report(step, ended - before, traffic.wait_seconds - waited_before)
            if answer.metrics:
                self._telemetry.evaluation({"step": number, "epoch": step.epoch, **answer.metrics})

    def save_last(self) -> None:
        """Save the last step that was applied, or step 0, unless one is half done or that is saved already."""
        if self._client.trains and not self.walk.inside_step and self._client.link_state().step > self._saved:
            self._save()

    def _save(self) -> None:
        began, link = time.monotonic(), self._client.link_state()
        self._store.save(link.step, *content(self.walk, link, self.seconds))
        self._telemetry.prometheus.saved(link.step, time.monotonic() - began)
        self._saved = link.step

    def _report(self, step: Step, seconds: float, waited: float) -> None:
        self._telemetry.step(
            Progress(
                step=step.number,
                steps=self.walk.schedule.steps,
                epoch=step.epoch,
                epochs=self._epochs,
                kind=step.kind,
                rows=len(step.rows),
                seconds=seconds,
                waited=waited,
            )
        )
