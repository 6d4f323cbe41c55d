"""Statistics of sweeps and listening tests: functions from arrays or tables to results."""

from voicelab.stats.crossed import CrossedTest, crossed_mean, crossed_share
from voicelab.stats.effects import Effects, effects
from voicelab.stats.equivalence import Equivalence, equivalence
from voicelab.stats.estimate import (
    Estimate,
    Test,
    benjamini_hochberg,
    cliff_delta,
    holm,
    standardized_difference,
    superiority,
)
from voicelab.stats.judgements import (
    Screening,
    binomial,
    intraclass_correlation,
    krippendorff_alpha,
    mean_opinion_score,
    screen_mushra,
    wilcoxon,
)
from voicelab.stats.mixed import MixedModel, mixed_model
from voicelab.stats.ordinal import OrdinalModel, ordinal_model
from voicelab.stats.planning import (
    SequentialTest,
    choice_power,
    rating_power,
    ratings_needed,
    trials_needed,
)
from voicelab.stats.simulation import PowerPlan, plan_sweep, plan_test

__all__ = [
    "CrossedTest",
    "Effects",
    "Equivalence",
    "Estimate",
    "MixedModel",
    "OrdinalModel",
    "PowerPlan",
    "Screening",
    "SequentialTest",
    "Test",
    "benjamini_hochberg",
    "binomial",
    "choice_power",
    "cliff_delta",
    "crossed_mean",
    "crossed_share",
    "effects",
    "equivalence",
    "holm",
    "intraclass_correlation",
    "krippendorff_alpha",
    "mean_opinion_score",
    "mixed_model",
    "ordinal_model",
    "plan_sweep",
    "plan_test",
    "rating_power",
    "ratings_needed",
    "screen_mushra",
    "standardized_difference",
    "superiority",
    "trials_needed",
    "wilcoxon",
]
