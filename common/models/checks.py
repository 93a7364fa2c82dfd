"""What every model passes before it trains: it has the right shape, is finite, learns, and keeps rows apart.

Shape suffixes: B rows of the batch, F input columns, d output width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from cutlayer.common.errors import ConfigError, PluginError, UserError
from cutlayer.common.tables import InputSpec

_REASON = (
    "what a row gives then depends on who else is in its batch, so the gradient of one row carries the labels of "
    "the others, and neither a defense's guarantee nor a measured leak holds for a row"
)


@dataclass(frozen=True)
class Trial:
    """Two batches of two rows each to try a model on; their first rows are the same, their second differ."""

    rows_BF: Tensor
    other_BF: Tensor


def feature_trial(inputs: InputSpec) -> Trial:
    """Made-up features as a bottom model sees them."""
    numeric = torch.randn(3, inputs.numeric, generator=torch.Generator().manual_seed(1))
    codes = torch.tensor([[count - 1, 0, count // 2] for count in inputs.cardinalities]).reshape(-1, 3).T
    rows = torch.cat([numeric, codes.float()], dim=1)
    return Trial(rows[[0, 1]], rows[[0, 2]])


def build_checked(make: Callable[[], nn.Module], trial: Trial, width: int, seed: int, where: str) -> nn.Module:
    """The model that `make` makes, with weights that follow from `seed` alone; torch's own generator is left as it was.

    Most checks run on twins of the model, in training mode and with the same seed, so that dropout drops the same
    and statistics of the trial rows stay out of the model itself.

    Args:
        width: numbers that the model must give for each row.
        where: what messages call the model, such as `bottom_model 'mlp'`.

    Raises:
        UserError: the model cannot be built, or fails a check.
    """
    with torch.random.fork_rng(devices=[]):
        model, twin, other_twin = (_make(make, seed, where) for _ in range(3))
        y_Bd = _try(twin, trial.rows_BF, width, seed, where)
        other_Bd = _try(other_twin, trial.other_BF, width, seed, where)
        with torch.no_grad():
            _try(model.eval(), trial.rows_BF, width, seed, where)
    if not all(map(torch.equal, twin.parameters(), other_twin.parameters())):
        raise ConfigError(f"{where} starts with other weights each time; draw them by torch alone, which is seeded")
    if not torch.allclose(y_Bd[0], other_Bd[0], rtol=1e-4, atol=1e-6):
        raise ConfigError(f"{where} mixes the rows of a batch: {_REASON}. Make it treat each row by itself")
    if not y_Bd.requires_grad:
        raise ConfigError(f"{where} has nothing to train: no gradient flows from its output")
    return model.train()


def refuse_row_mixing(module: nn.Module, where: str) -> None:
    """Refuse a model with batch normalisation.

    Raises:
        ConfigError: with the layer, the reason and the remedy.
    """
    for name, layer in module.named_modules():
        if isinstance(layer, _BatchNorm):
            raise ConfigError(
                f"{where} has a {type(layer).__name__} (layer {name or 'itself'}), which normalises each row by the "
                f"rows of its batch: {_REASON}. Use GroupNorm or LayerNorm instead"
            )


def _make(make: Callable[[], nn.Module], seed: int, where: str) -> nn.Module:
    torch.default_generator.manual_seed(seed)
    try:
        model = make()
    except UserError:
        raise
    except Exception as error:
        raise PluginError(f"{where} cannot be built: {type(error).__name__}: {error}") from error
    if not isinstance(model, nn.Module):
        raise PluginError(f"{where} is {type(model).__name__}, expected a torch.nn.Module")
    refuse_row_mixing(model, where)
    return model


def _try(model: nn.Module, x_BF: Tensor, width: int, seed: int, where: str) -> Tensor:
    torch.default_generator.manual_seed(seed)
    try:
        y_Bd = model(x_BF)
    except Exception as error:
        raise PluginError(
            f"{where} fails on two rows of {x_BF.shape[1]} numbers: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(y_Bd, Tensor):
        raise PluginError(f"{where} returns {type(y_Bd).__name__}, expected one tensor")
    if y_Bd.shape != (2, width) or y_Bd.dtype != torch.float32:
        raise PluginError(
            f"{where} returns {tuple(y_Bd.shape)} {y_Bd.dtype} for two rows, expected {(2, width)} {torch.float32}"
        )
    if not bool(torch.isfinite(y_Bd).all()):
        raise PluginError(f"{where} returns numbers that are not finite for rows of ordinary size")
    return y_Bd
