"""Made-up golden records and measurements: one gated metric, one that is not, eight seeds, a machine."""

from goatbench.regression.golden import GoldenJob, Measured

IDENTITY, DATA = "a" * 16, "b" * 16
HERE, ELSEWHERE = "torch 2.14, AVX512, AMD", "torch 2.9, NEON, Apple"
GATED = ("nll_nats",)
SEEDS = (0, 1, 2, 3, 4, 5, 6, 7)
NLL = dict(zip(SEEDS, (2.00, 2.02, 1.98, 2.01, 1.99, 2.03, 1.97, 2.00), strict=True))  # mean 2, sd 0.02
TOP1 = {0: 0.50, 1: 0.52}
RATIOS = (1.20, 1.22, 1.18, 1.21, 1.19, 1.20, 1.20, 1.20)


def golden_job() -> GoldenJob:
    return GoldenJob(
        identity=IDENTITY, task_version=1, data_fingerprint=DATA,
        directions={"nll_nats nominal=512": "lower", "top1 nominal=512": "higher"},
        scores={HERE: {"nll_nats nominal=512": NLL, "top1 nominal=512": TOP1}},
        cost_ratios=RATIOS,
    )  # fmt: skip


def measured(score: float = 1.0, cost: float = 1.2, **changes) -> Measured:
    """What the golden record says for seeds 0 and 1, its NLL times `score`, with `cost` times the baseline's second."""
    nll = {seed: NLL[seed] * score for seed in (0, 1)}
    values = dict(
        identity=IDENTITY, task_version=1, data_fingerprint=DATA,
        directions={"nll_nats nominal=512": "lower", "top1 nominal=512": "higher"},
        scores={"nll_nats nominal=512": nll, "top1 nominal=512": dict(TOP1)},
        costs=(cost, 1.1 * cost),
    )  # fmt: skip
    return Measured(**(values | changes))
