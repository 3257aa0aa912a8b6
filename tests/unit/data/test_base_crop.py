"""LookHere's protocol crops at the base resolution only."""

from goatbench.compose import compose


def test_lookhere_crops_at_base_only():
    evaluation = compose(["scale=paper", "evaluation=lookhere", "data.root=/nowhere"]).spec.evaluation
    assert evaluation.crop_at(224, 224) == 0.875  # short side to 256, as in their code
    assert [evaluation.crop_at(side, side) for side in (320, 512, 1024)] == [1.0, 1.0, 1.0]
    assert evaluation.crop_at(224, 320) == 1.0
    sizes = ["model.image_size=[224,320]", "evaluation.pixels.224=[224,320]"]
    oblong = compose(["scale=paper", "evaluation=lookhere", "data.root=/nowhere", *sizes]).spec.evaluation
    assert [oblong.crop_at(*size) for size in ((224, 320), (320, 224), (224, 224))] == [0.875, 1.0, 1.0]
    timm = compose(["scale=paper", "evaluation=timm", "data.root=/nowhere"]).spec.evaluation
    assert timm.crop_at(224, 224) == timm.crop_at(512, 512) == 0.9
