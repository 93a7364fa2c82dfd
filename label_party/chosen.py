"""What the run file chooses for the label party: a defense for each party, and the objective that comes with it."""

from __future__ import annotations

from cutlayer.common.config import Choice, LabelPartySection
from cutlayer.common.errors import ConfigError, PluginError
from cutlayer.common.job import Job
from cutlayer.label_party.aggregation import aggregate_width
from cutlayer.label_party.defenses import Defense, defenses
from cutlayer.label_party.objectives import CrossEntropy, Objective, ObjectiveSetting


def make_defense(job: Job, choice: Choice) -> Defense:
    """The defense of a run file, for one party.

    Raises:
        PluginError: there is none of that name or option, or it does not fit the task.
    """
    defense = defenses.create(choice.name, choice.options)
    if job.task not in defense.tasks:
        raise PluginError(f"defense {choice.name!r} is for task {', '.join(sorted(defense.tasks))}, not {job.task}")
    return defense


def require_settled(job: Job, choice: Choice) -> None:
    """Refuse a defense with an option that has to be found first: no party can do that alone.

    Raises:
        ConfigError: what to do instead.
    """
    search = make_defense(job, choice).search()
    if search is not None:
        values = ", ".join(map(str, search.values))
        raise ConfigError(
            f"defense {choice.name}, {search.option}: auto: `cutlayer run` finds the value by short runs of all "
            f"parties; a party on its own host cannot, nor does a sweep. Run the job together with job.row_fraction: "
            f"{search.row_fraction} for each {search.option} of {values}, take the one with the highest test AUC less "
            f"leak AUC, and write it here. In a sweep make an axis of it: label_party.defense.{search.option}: "
            f"[{values}]"
        )


def make_objective(
    job: Job, section: LabelPartySection, defense: Defense, *, own_features: bool, train_rows: int
) -> Objective:
    """What `defense` trains by, or else the cross-entropy of the job.

    Args:
        own_features: whether the label party has features too.
        train_rows: rows of an epoch.

    Raises:
        UserError: the top model or the defense does not fit.
    """
    setting = ObjectiveSetting(
        task=job.task,
        outputs=job.classes if job.task == "multiclass" else 1,
        width=aggregate_width(job.cut_layer, job.parties, own_features=own_features),
        addends=len(job.parties) + own_features if job.cut_layer.aggregation == "sum" else 1,
        top_model=section.top_model,
        rate=section.optimizer.lr,
        seed=job.seed if section.seed is None else section.seed,
        train_rows=train_rows,
    )
    return defense.objective(setting) or CrossEntropy(setting)
