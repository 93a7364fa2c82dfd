"""The label party's figures for Prometheus: those of any party, and those that only the label party may know."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from cutlayer.common.leakage import flipped
from cutlayer.common.metrics import Metrics
from cutlayer.common.progress import Progress, Record

_PLACE = ("step", "epoch")  # of a record: where in the run it is


class LabelPartyMetrics(Metrics):
    """What the label party shows. Loss, evaluations, leak and bound follow from labels."""

    def __init__(self, job: str, party: str) -> None:
        super().__init__(job, party)
        self._loss = self._gauge("train_loss", "Mean loss of the last training batch.")
        self._loss.set(math.nan)
        self._leak = self._gauge("leak_auc", "Leak AUC of the last training batch, of the party worst off.", "attack")
        self._flipped = self._gauge("leak_auc_flipped", "max(a, 1 - a) of that leak AUC a.", "attack")
        self._figures = self._gauge("evaluation", "Figures of the last evaluation.", "figure")
        self._bound = self._gauge("leak_auc_bound", "Bound on the leak AUC, as the defense states it.", "scope")

    def step(self, progress: Progress) -> None:
        """A step is done."""
        super().step(progress)
        if progress.loss is not None:
            self._loss.set(progress.loss)
        for attack, auc in (progress.leak or {}).items():
            self._leak.labels(attack).set(auc)
            self._flipped.labels(attack).set(flipped(auc))

    def evaluation(self, record: Record) -> None:
        """The figures of an evaluation point; NaN where one is undefined."""
        for figure, value in record.items():
            if figure not in _PLACE:
                self._figures.labels(figure).set(math.nan if value is None else value)

    def bound(self, summary: Mapping[str, float | str] | None) -> None:
        """What `RunBound.summary` says; nothing where the defense states no bound."""
        if summary is not None:
            self._bound.labels("step").set(float(summary["per_step_leak_auc"]))
            self._bound.labels("run").set(float(summary["whole_run_leak_auc"]))

    def watch(self, connected: Callable[[], int], unanswered: Callable[[], int]) -> None:
        """Ask these at each scrape: how many parties have an open stream, how many activations have no answer yet."""
        self._gauge("connected_parties", "Parties with an open stream.").set_function(connected)
        self._gauge("unanswered_activations", "Activations that have come and have no answer yet.").set_function(
            unanswered
        )
