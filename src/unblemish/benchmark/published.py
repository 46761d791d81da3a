"""The paper's table (b): 35 % noise, 10 labels a class; mean and standard error over five seeds."""

from __future__ import annotations

from typing import NamedTuple


class Published(NamedTuple):
    """Each figure as (mean, standard error)."""

    avpr: tuple[float, float]
    smse_dirty: tuple[float, float]
    smse_clean: tuple[float, float]


TABLE: dict[str, dict[str, Published]] = {
    "shapes": {
        "vae-l2": Published((0.93, 0.03), (0.049, 0.008), (0.015, 0.002)),
        "vaegmm": Published((0.62, 0.10), (0.974, 0.009), (0.003, 3e-4)),
        "cvae": Published((0.47, 0.03), (0.429, 0.114), (0.003, 3e-4)),
        "ccvae": Published((0.98, 0.03), (0.031, 0.023), (0.008, 0.001)),
        "clsvae-nodc": Published((0.99, 3e-4), (0.018, 0.024), (0.002, 3e-4)),
        "clsvae": Published((0.99, 0.02), (0.014, 0.008), (0.005, 0.004)),
    },
    "fashion": {
        "vae-l2": Published((0.49, 0.03), (1.362, 1.140), (0.175, 0.004)),
        "vaegmm": Published((0.66, 0.13), (3.161, 1.032), (0.095, 0.001)),
        "cvae": Published((0.36, 0.01), (1.732, 0.335), (0.099, 0.001)),
        "ccvae": Published((0.81, 0.09), (1.719, 0.956), (0.136, 0.003)),
        "clsvae-nodc": Published((0.84, 0.10), (0.854, 0.214), (0.107, 0.002)),
        "clsvae": Published((0.84, 0.08), (0.572, 0.238), (0.108, 0.002)),
    },
    "frey": {
        "vae-l2": Published((0.73, 0.14), (10.32, 6.118), (0.420, 0.033)),
        "vaegmm": Published((0.96, 0.06), (22.32, 4.112), (0.070, 0.003)),
        "cvae": Published((0.42, 0.02), (3.190, 0.675), (0.111, 0.024)),
        "ccvae": Published((0.99, 0.01), (0.947, 0.123), (0.270, 0.059)),
        "clsvae-nodc": Published((0.85, 0.13), (0.269, 0.078), (0.172, 0.048)),
        "clsvae": Published((0.99, 0.02), (0.321, 0.168), (0.177, 0.033)),
    },
}
