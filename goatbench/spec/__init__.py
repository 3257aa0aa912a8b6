"""What a run is: the validated, frozen specification that every part of the suite is given. No torch here.

Hydra composes the values, these models check them, and `config_hash` names them.
"""

from ..records.canonical import canonical_json, digest
from .attention import AttentionSpec
from .data import AugmentationSpec, GenomeDataSpec, ImageDataSpec, StoryDataSpec, TextDataSpec, ToyDataSpec
from .domains import DOMAIN_AXES, RUN_SPECS, CausalRunSpec, GenomeRunSpec, StoryRunSpec, TextRunSpec, ToyRunSpec, VisionRunSpec
from .evaluation import GenomeEvaluationSpec, ImageEvaluationSpec, StoryEvaluationSpec, TextEvaluationSpec, ToyEvaluationSpec
from .image_size import ImageSize, sides, size_label
from .models import DecoderSpec, VitSpec
from .run import LATER_FIELDS, RunSpec
from .strict import Strict
from .tasks import SequenceTaskSpec, VisionTaskSpec
from .training import LaunchSpec, TrainerSpec, TrainingSpec

__all__ = [
    "DOMAIN_AXES", "LATER_FIELDS", "RUN_SPECS", "AttentionSpec", "AugmentationSpec", "CausalRunSpec", "DecoderSpec", "GenomeDataSpec",
    "GenomeEvaluationSpec", "GenomeRunSpec", "ImageDataSpec", "ImageEvaluationSpec", "ImageSize", "LaunchSpec", "RunSpec",
    "SequenceTaskSpec", "StoryDataSpec", "StoryEvaluationSpec", "StoryRunSpec", "Strict", "TextDataSpec", "TextEvaluationSpec",
    "TextRunSpec", "ToyDataSpec", "ToyEvaluationSpec", "ToyRunSpec", "TrainerSpec", "TrainingSpec", "VisionRunSpec", "VisionTaskSpec",
    "VitSpec", "canonical_json", "digest", "sides", "size_label",
]  # fmt: skip
