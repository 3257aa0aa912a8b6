"""GoatViT computes what timm's Eva computes, at any size, and survives what users do to a timm model."""

import copy

import pytest
import torch
from timm.models.eva import Eva

PREFIXES = [dict(class_token=True), dict(class_token=True, num_reg_tokens=3), dict(class_token=False)]


def as_eva(net, **overrides):
    """timm's own Eva without positions, holding the same weights (q, k, v fused, as timm stores them)."""
    sizes = dict(img_size=12, patch_size=2, num_classes=5, embed_dim=32, depth=2, num_heads=2, global_pool=net.global_pool)
    reference = Eva(**sizes, use_abs_pos_emb=False, use_rot_pos_emb=False, dynamic_img_size=True, **overrides).eval()
    state = {k: v for k, v in net.state_dict().items() if "_proj." not in k}
    for i in range(2):
        attn = net.blocks[i].attn
        state[f"blocks.{i}.attn.qkv.weight"] = torch.cat([attn.q_proj.weight, attn.k_proj.weight, attn.v_proj.weight])
        state[f"blocks.{i}.attn.q_bias"], state[f"blocks.{i}.attn.v_bias"] = attn.q_proj.bias, attn.v_proj.bias
    missing, unexpected = reference.load_state_dict(state, strict=False)
    assert not missing and not unexpected
    return reference


def randomised(net):
    """Weights far from their initial values: every bias and norm counts."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.2 * torch.randn(p.shape, generator=generator))
    return net


@pytest.mark.parametrize("prefix", PREFIXES, ids=["cls", "cls+reg", "none"])
@pytest.mark.parametrize("size", [(12, 12), (16, 28), (40, 8)])
def test_without_positions_it_is_timms_eva(tiny, images, prefix, size):
    net = randomised(tiny(init_values=0.3, **prefix))
    reference = as_eva(net, init_values=0.3, **prefix)
    x = images(*size)
    with torch.no_grad():
        torch.testing.assert_close(net.forward_features(x), reference.forward_features(x), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(net(x), reference(x), rtol=1e-5, atol=1e-5)


def test_gradients_are_timms(tiny, images):
    net = randomised(tiny())
    reference = as_eva(net)
    x = images(16, 12)
    for model in (net, reference):
        model(x).square().sum().backward()
    for i in range(2):
        attn = net.blocks[i].attn
        ours = torch.cat([attn.q_proj.weight.grad, attn.k_proj.weight.grad, attn.v_proj.weight.grad])
        torch.testing.assert_close(ours, reference.blocks[i].attn.qkv.weight.grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(net.patch_embed.proj.weight.grad, reference.patch_embed.proj.weight.grad, rtol=1e-4, atol=1e-5)


def test_forward_intermediates_are_the_block_outputs(tiny, gaussian, images):
    net = tiny(gaussian, num_reg_tokens=2)
    x, outputs = images(8, 20), []
    hooks = [block.register_forward_hook(lambda m, a, out: outputs.append(out)) for block in net.blocks]
    with torch.no_grad():
        features = net.forward_features(x)
        expected = list(outputs)
        for hook in hooks:
            hook.remove()
        final, maps = net.forward_intermediates(x)
    torch.testing.assert_close(final, features, rtol=0, atol=0)
    assert [tuple(m.shape) for m in maps] == [(2, 32, 4, 10)] * 2
    for tokens, image in zip(expected, maps, strict=True):
        for row, column in [(0, 0), (1, 3), (3, 9)]:  # token behind the 3 prefix tokens, row by row
            torch.testing.assert_close(image[:, :, row, column], tokens[:, 3 + row * 10 + column], rtol=0, atol=0)


def test_deepcopy_is_equal_and_independent(tiny, gaussian, images):
    net = tiny(gaussian)
    twin = copy.deepcopy(net)
    x, other = images(12, 12), images(20, 8)
    with torch.no_grad():
        before = net(x)
        assert torch.equal(twin(x), before) and torch.equal(twin(other), net(other))
        twin.set_coordinates("scaled")
        twin.blocks[0].attn.scheme.weight.mul_(5)
        assert not torch.allclose(twin(x), before)
        assert torch.equal(net(x), before) and net.rope.mode == "raw"
    del net
    assert twin(other).isfinite().all()


@pytest.mark.parametrize("position", ["gaussian", "goat", "learned_absolute", "alibi_2d"])
def test_gradient_checkpointing_changes_nothing(tiny, gaussian, images, options_of, position):
    scheme = dict(position=gaussian) if position == "gaussian" else options_of(position)
    x, grads, entered = images(16, 12), [], []
    for enable in (False, True):
        net = tiny(**scheme).train()
        net.set_grad_checkpointing(enable)
        net.blocks[1].register_forward_pre_hook(lambda block, inputs, enable=enable: entered.append(enable))
        loss = net(x).square().mean()
        loss.backward()
        grads.append((loss.detach(), {name: p.grad for name, p in net.named_parameters()}))
    assert entered == [False, True, True] and torch.equal(grads[0][0], grads[1][0])
    for name, grad in grads[0][1].items():
        torch.testing.assert_close(grads[1][1][name], grad, rtol=1e-6, atol=1e-8, msg=name)


def test_attention_masks_are_refused_and_causality_works(tiny, images):
    net = tiny()
    with pytest.raises(ValueError, match="attn_mask is not supported"):
        net(images(12, 12), attn_mask=torch.ones(1, 1, 37, 37, dtype=torch.bool))
    x = images(12, 12)
    changed = x.clone()
    changed[:, :, -2:, -2:] += 1  # the last patch
    with torch.no_grad():
        before, after = (net.forward_features(image, is_causal=True) for image in (x, changed))
        assert torch.equal(before[:, :-1], after[:, :-1]) and not torch.allclose(before[:, -1], after[:, -1])
        assert not torch.allclose(net.forward_features(x)[:, 0], net.forward_features(changed)[:, 0])


def test_no_parameter_is_idle_with_any_mechanism(tiny, images, options_of, planar):
    """Stock DDP waits for a gradient of every parameter."""
    net = tiny(**options_of(planar), num_reg_tokens=1, init_values=1e-2).train()
    net(images(12, 12)).square().sum().backward()
    assert [name for name, p in net.named_parameters() if p.grad is None] == []


def test_inference_first_then_training(tiny, images, options_of, planar):
    """Nothing made under inference_mode may be reused in training."""
    net = tiny(**options_of(planar))
    x = images(16, 12)
    with torch.inference_mode():
        before = net(x).clone()
    net.train()(x).sum().backward()
    torch.testing.assert_close(net.eval()(x).detach(), before, rtol=1e-5, atol=1e-6)
