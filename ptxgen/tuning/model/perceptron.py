"""Multi-layer perceptrons of the paper's Table 2, for comparison with the trees. Only this module imports scikit-learn,
a package for development that programs never need."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.errors import UnavailableError
from ptxgen.install_advice import install_extra
from ptxgen.tuning.model.training import SEED, Floats, Training

#: the sizes of the hidden layers of each perceptron, in the order of the table
HIDDEN_LAYERS = (
    (64,),
    (512,),
    (32, 64, 32),
    (64, 128, 64),
    (32, 64, 128, 64, 32),
    (64, 128, 256, 128, 64),
    (64, 128, 192, 256, 192, 128, 64),
)
EPOCHS, PATIENCE, BATCH, RATE = 40, 6, 256, 2e-3  #: Adam's parameters; PATIENCE epochs without progress end training
VALIDATION = 0.1  #: fraction of the training rows that decides when training ends
CONSTANT = 1e-3  #: a feature with a smaller standard deviation is not scaled
FARTHEST = 8.0  #: features are clipped at so many standard deviations: few training rows do not show their range


class Perceptron:
    """A multi-layer perceptron with rectified linear units. It reads the same features as the trees, each scaled to
    mean 0 and variance 1, and learns the same logarithm of time. UnavailableError: scikit-learn is missing."""

    def __init__(
        self, hidden: tuple[int, ...], rows: Training, target: str, mask: NDArray[np.bool_], seed: int = SEED
    ) -> None:
        networks, unfinished = require()
        x, y = rows.x[mask], (rows.log_us - rows.bases[target])[mask]
        deviation = x.std(axis=0)
        self.mean, self.scale = x.mean(axis=0), np.where(deviation > CONSTANT, deviation, np.float32(1))
        self.base, self.spread = float(y.mean()), max(float(y.std()), 1e-6)
        self.network: Any = networks.MLPRegressor(
            hidden_layer_sizes=hidden,
            activation="relu",
            solver="adam",
            batch_size=max(min(BATCH, int(len(y) * (1 - VALIDATION))), 1),
            learning_rate_init=RATE,
            max_iter=EPOCHS,
            early_stopping=len(y) >= 100,
            validation_fraction=VALIDATION,
            n_iter_no_change=PATIENCE,
            random_state=seed,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", unfinished)  # EPOCHS is a limit, not a failure
            self.network.fit(self._scaled(x), (y - self.base) / self.spread, sample_weight=rows.weights()[mask])

    @property
    def weights(self) -> int:
        """The number of trained weights, biases included."""
        return sum(w.size for w in (*self.network.coefs_, *self.network.intercepts_))

    def predict(self, x: Floats) -> Floats:
        """The learnt logarithm of the time of each row."""
        return np.asarray(self.network.predict(self._scaled(x)) * self.spread + self.base, np.float32)

    def _scaled(self, x: Floats) -> Floats:
        return np.asarray(np.clip((x - self.mean) / self.scale, -FARTHEST, FARTHEST), np.float32)


def require() -> tuple[Any, Any]:
    """Scikit-learn's module of neural networks, and the class of its warning that training ended at the limit of
    epochs. UnavailableError: scikit-learn is missing."""
    try:
        from sklearn import exceptions, neural_network
    except ImportError as error:
        raise UnavailableError(f"multi-layer perceptrons need scikit-learn: {install_extra('evaluation')}") from error
    return neural_network, exceptions.ConvergenceWarning
