"""Statistics of experiments: effects beside sampling noise, and what listening tests need."""

from voicelab.experiments.statistics.crossed import CrossedTest, crossed_mean, crossed_share
from voicelab.experiments.statistics.effects import Effects, effects
from voicelab.experiments.statistics.estimate import Estimate, Test, benjamini_hochberg, holm
from voicelab.experiments.statistics.judgements import (
    BradleyTerry,
    Friedman,
    Screening,
    binomial,
    bradley_terry,
    friedman,
    intraclass_correlation,
    krippendorff_alpha,
    mean_opinion_score,
    screen_mushra,
    wilcoxon,
)
from voicelab.experiments.statistics.mixed import MixedModel, mixed_model
from voicelab.experiments.statistics.planning import Sprt, choice_power, rating_power, ratings_needed, trials_needed
from voicelab.experiments.statistics.sizes import cliff_delta, standardised_difference, superiority

__all__ = [
    "BradleyTerry",
    "CrossedTest",
    "Effects",
    "Estimate",
    "Friedman",
    "MixedModel",
    "Screening",
    "Sprt",
    "Test",
    "benjamini_hochberg",
    "binomial",
    "bradley_terry",
    "choice_power",
    "cliff_delta",
    "crossed_mean",
    "crossed_share",
    "effects",
    "friedman",
    "holm",
    "intraclass_correlation",
    "krippendorff_alpha",
    "mean_opinion_score",
    "mixed_model",
    "rating_power",
    "ratings_needed",
    "screen_mushra",
    "standardised_difference",
    "superiority",
    "trials_needed",
    "wilcoxon",
]
