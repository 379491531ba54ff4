from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
bitsandbytes = pytest.importorskip("bitsandbytes")

from memprof.recipes.bitsandbytes_2023 import Linear4bit2023  # noqa: E402 - after the check that it can be imported

pytestmark = pytest.mark.torch


def layers():
    """The same weights in a layer of today and in one of 2023, quantized."""
    torch.manual_seed(0)
    today = bitsandbytes.nn.Linear4bit(64, 96, quant_type="nf4", compress_statistics=False)
    old = Linear4bit2023(64, 96, quant_type="nf4", compress_statistics=False)
    today.weight.data = today.weight.data.half()
    old.load_state_dict(today.state_dict())
    for layer in (today, old):
        layer.requires_grad_(requires_grad=False)
    return today.to("cpu"), old.to("cpu")


def run(layer, x):
    """Output, gradient of the input, and the tensors that the graph keeps in attributes."""
    x = x.clone().requires_grad_()
    output = layer(x)
    node = output.grad_fn
    while not hasattr(node, "tensors"):
        node = node.next_functions[0][0]
    kept = node.tensors
    output.backward(torch.ones_like(output))
    return output.detach(), x.grad, kept


def test_it_computes_what_todays_layer_computes():
    today, old = layers()
    x = torch.randn(2, 5, 64)
    output, gradient, _ = run(old, x)
    expected, expected_gradient, _ = run(today, x)
    assert output.dtype == torch.float32
    torch.testing.assert_close(output, expected, rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(gradient, expected_gradient, rtol=2e-3, atol=2e-3)


def test_it_keeps_the_input_and_todays_layer_does_not():
    today, old = layers()
    x = torch.randn(2, 5, 64)
    _, _, (kept, _) = run(old, x)
    assert kept.shape == x.shape
    assert run(today, x)[2][0] is None


def test_a_layer_that_needs_no_gradient_keeps_nothing():
    _, old = layers()
    assert old(torch.randn(2, 64)).grad_fn is None


def test_the_weight_is_rebuilt_in_float16_whatever_it_was():
    layer = Linear4bit2023(64, 96, quant_type="nf4").to("cpu")
    assert layer.weight.quant_state.dtype == torch.float16


def test_a_bias_that_is_trained_gets_its_gradient():
    _, old = layers()
    old.bias.requires_grad_(requires_grad=True)
    output = old(torch.randn(2, 5, 64).requires_grad_())
    output.backward(torch.ones_like(output))
    torch.testing.assert_close(old.bias.grad, torch.full((96,), 10.0))


def test_under_autocast_the_output_has_the_inputs_dtype():
    _, old = layers()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert old(torch.randn(2, 64)).dtype == torch.float32
