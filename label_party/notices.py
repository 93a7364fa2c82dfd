"""What a person should look into while a run goes on, each said once: exact gradients, fallbacks, a growing bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cutlayer.label_party.training import LabelTraining

_FAR = 2.0  # times what a step's bound has above 1/2: about four releases of a row at the same strength


def worse_than_chance(utility: Mapping[str, float | int | None]) -> str | None:
    """What to say of a trained model that ranks test rows the wrong way round, None of any other."""
    auc = utility.get("test_auc")
    if auc is None or auc >= 0.5:
        return None
    return (
        f"test AUC {auc:.3f}: the model ranks the test rows worse than chance. It has learned nothing yet, or is "
        "upside down. More epochs, other learning rates or another seed may help; do not use it as it is"
    )


class Notices:
    """Looks at a training after each step."""

    def __init__(self, training: LabelTraining) -> None:
        self._training = training
        self._said: set[tuple[str, str]] = set()

    def new(self, step: int) -> list[str]:
        """What is new after `step`."""
        found = [*self._objective(), *self._exact(), *self._fallbacks(), *self._bound()]
        fresh = [text for key, text in found if key not in self._said]
        self._said.update(key for key, _ in found)
        return [f"step {step}: {text}" for text in fresh]

    def _objective(self) -> Iterator[tuple[tuple[str, str], str]]:
        return ((("", key), text) for key, text in self._training.objective.notes().items())

    def _exact(self) -> Iterator[tuple[tuple[str, str], str]]:
        for party, releases in self._training.unprotected.parties.items():
            if releases.exact_steps and not self._training.defenses[party].passes_unchanged:
                yield (
                    (party, "exact"),
                    f"the defense left the whole gradient for {party} as it is; such steps are counted in "
                    "`releases` of summary.json",
                )

    def _fallbacks(self) -> Iterator[tuple[tuple[str, str], str]]:
        for party, defense in self._training.defenses.items():
            for name, count in defense.counts().items():
                if count:
                    yield (party, name), f"the defense for {party}: {name.replace('_', ' ')}; counted in summary.json"

    def _bound(self) -> Iterator[tuple[tuple[str, str], str]]:
        bound = self._training.bound
        if bound.stated and bound.whole_run - 0.5 > _FAR * (bound.per_step - 0.5):
            yield (
                ("", "bound"),
                f"the bound for the whole run is {bound.whole_run:.2f} by now, that for a step {bound.per_step:.2f}: "
                "an attacker who puts together what it sees of a row in each epoch may do better than on any step. "
                "For less: fewer epochs, or more noise",
            )
