"""What the benchmarks train: four models, made-up data of the right shape, and run files that name them.

Shape suffixes: N rows, C channels, H height, W width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from torch import nn

from cutlayer.plugins import Dataset, Table

Run = dict[str, Any]

_SOURCE = "benchmarks.workloads:MadeUpRows"
_POSITIVES = 0.25
_SEED = 20  # of the data
_IMAGE = (3, 32, 32)  # C, H, W of what the network of convolutions gets
_CHANNELS = 64
_MAP = (_CHANNELS, 8, 8)  # C, H, W of the feature map at its cut

DEFENSES: Mapping[str, Run] = {
    "none": {"name": "none"},
    "marvell": {"name": "marvell", "scale": 1.0},
    "gafm": {"name": "gafm", "generator": "free"},  # so that the generator is the workload's top model
}


@dataclass(kw_only=True)
class MadeUpRows(Dataset):
    """Random numbers, the same at every call. Labels have nothing to do with the features: speed is all that counts.

    Args:
        columns: what the party holds.
        rows: N; their ids are 0 to N-1.
        numeric: columns of standard normal numbers; those of an image if there are as many as it has pixels.
        categorical: columns of categories.
        cardinality: categories of each of those.
    """

    columns: Literal["labels", "features"]
    rows: int
    numeric: int = 0
    categorical: int = 0
    cardinality: int = 1000

    def load(self) -> Table:
        ids = tuple(map(str, range(self.rows)))
        random = np.random.default_rng([_SEED, len(self.columns)])
        if self.columns == "labels":
            label = (random.random(self.rows) < _POSITIVES).astype(int)
            return Table(ids, pa.table({}), pa.array(label.astype(str), pa.string()), "made-up labels")
        columns = {f"x{i}": pa.array(random.standard_normal(self.rows)) for i in range(self.numeric)}
        names = pa.array([f"c{code}" for code in range(self.cardinality)])
        for i in range(self.categorical):
            codes = pa.array(random.integers(self.cardinality, size=self.rows))
            columns[f"c{i}"] = pa.DictionaryArray.from_arrays(codes, names)
        image = _IMAGE if self.numeric == math.prod(_IMAGE) else None
        return Table(ids, pa.table(columns), None, "made-up features", image=image)


def bottom_convolutions(inputs: int, width: int) -> nn.Module:
    """Four convolutions, from an image of 3x32x32 numbers to a feature map of 64x8x8, both flat."""
    assert (inputs, width) == (math.prod(_IMAGE), math.prod(_MAP))
    half = _CHANNELS // 2
    return nn.Sequential(
        nn.Unflatten(1, _IMAGE),
        *_convolution(_IMAGE[0], half),
        *_convolution(half, half),
        nn.MaxPool2d(2),
        *_convolution(half, _CHANNELS),
        *_convolution(_CHANNELS, _CHANNELS),
        nn.MaxPool2d(2),
        nn.Flatten(),
    )


def top_convolutions(width: int, outputs: int) -> nn.Module:
    """Two more convolutions, and a linear layer."""
    return nn.Sequential(
        nn.Unflatten(1, _MAP),
        *_convolution(_CHANNELS, _CHANNELS),
        *_convolution(_CHANNELS, _CHANNELS),
        nn.Flatten(),
        nn.Linear(width, outputs),
    )


def _convolution(channels_in: int, channels_out: int) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(channels_in, channels_out, 3, padding=1), nn.ReLU()


@dataclass(frozen=True)
class Workload:
    """A model to train, and how long.

    Attributes:
        aim: training speed of the parties over that of one process, at least.
        epochs: the first one warms up.
        features: options of the data source for the party with the features.
    """

    name: str
    title: str
    aim: float
    batch_size: int
    epochs: int
    steps_per_epoch: int
    cut_width: int
    features: Run
    bottom_model: Run
    bottom_optimizer: Run
    top_model: Run

    def quick(self) -> Workload:
        """The same, but only a few steps."""
        return replace(self, epochs=2, steps_per_epoch=2)

    def run_file(self, defense: str) -> Run:
        """A run file for a label party and one non-label party, `features`."""
        rows = self.steps_per_epoch * self.batch_size
        return {
            "job": {
                "name": f"{self.name}-{defense}",
                "epochs": self.epochs,
                "batch_size": self.batch_size,
                "test_fraction": 0.0,
                "cut_layer": {"width": self.cut_width},
                "parties": ["features"],
            },
            "label_party": {
                "listen": "127.0.0.1:0",
                "data": {"source": _SOURCE, "columns": "labels", "rows": rows},
                "top_model": self.top_model,
                "optimizer": _ADAM,
                "defense": DEFENSES[defense],
            },
            "nonlabel_parties": {
                "features": {
                    "data": {"source": _SOURCE, "columns": "features", "rows": rows, **self.features},
                    "bottom_model": self.bottom_model,
                    "optimizer": self.bottom_optimizer,
                }
            },
        }


_ADAM = {"name": "adam", "lr": 0.001}
_MLP: Run = {
    "cut_width": 64,
    "features": {"numeric": 30},
    "bottom_model": {"name": "mlp", "hidden": [128]},
    "bottom_optimizer": _ADAM,
    "top_model": {"name": "mlp", "hidden": [32]},
}

WORKLOADS = (
    Workload(name="mlp-128", title="MLP, B = 128", aim=0.42, batch_size=128, epochs=11, steps_per_epoch=100, **_MLP),
    Workload(name="mlp-1024", title="MLP, B = 1024", aim=0.45, batch_size=1024, epochs=9, steps_per_epoch=50, **_MLP),
    Workload(
        name="wide-deep",
        title="Wide & Deep, B = 1024",
        aim=0.80,
        batch_size=1024,
        epochs=4,
        steps_per_epoch=20,
        cut_width=128,
        features={"numeric": 13, "categorical": 26, "cardinality": 10_000},
        bottom_model={"name": "wide_deep", "embedding_dim": 16, "hidden": [256, 128], "sparse": True},
        bottom_optimizer={"name": "adagrad", "lr": 0.01},
        top_model={"name": "mlp", "hidden": [128, 64]},
    ),
    Workload(
        name="cnn",
        title="CNN, B = 128",
        aim=0.90,
        batch_size=128,
        epochs=4,
        steps_per_epoch=4,
        cut_width=math.prod(_MAP),
        features={"numeric": math.prod(_IMAGE)},
        bottom_model={"name": "benchmarks.workloads:bottom_convolutions"},
        bottom_optimizer=_ADAM,
        top_model={"name": "benchmarks.workloads:top_convolutions"},
    ),
)
