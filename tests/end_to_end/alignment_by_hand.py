"""What the alignment rule must flag in ResNet-18 and BERT, derived from the architectures by hand.

Written from torchvision's and transformers' model code and from ATen's, before any code of this project was run on it;
two spellings were corrected then (the transposed view is ``t``, and attention's line is that of BERT's own file).
The rule looks at the last dimension of every floating tensor, each once, where it is made; a dimension of size 1 does
not count.

ResNet-18, images of 224: activations are (N, C, H, W). So the last dimension is the width: 112 behind the first
convolution, 56 behind the max-pool and in layer1, then 28, 14, 7. The average pool leaves width 1, which does not
count; its flattened output has 512 elements, the classifier's 1000. Of the parameters the 7×7 and 3×3 kernels end in 7
and 3, the 1×1 ones in 1, batch statistics in 64 to 512, the classifier's bias in 1000; its weight (1000, 512) is read
transposed, a view (512, 1000).

BERT: every weight ends in 768 or 3072, and so does every hidden state, or in a head's 64. What ends in the sequence's
length is made within attention: ATen turns the boolean mask into an additive one of floats (1, 1, length, length), and
attention returns the logarithm of its denominators (1, heads, length) beside its output. The boolean mask itself and
the token ids are no floating tensors.
"""

from typing import NamedTuple

WIDTHS = {"layer1": 56, "layer2": 28, "layer3": 14, "layer4": 7}
BLOCKS = (0, 1)
LAYERS = 12


class Flagged(NamedTuple):
    """One finding: the module, the packet that makes the tensor or the parameter's name, its last size, the line."""

    module: str
    what: str
    size: int
    code: str


def resnet18(alignment: int) -> list[Flagged]:
    """Every finding in ResNet-18's inference graph at batch 1 and image side 224."""
    found = [
        Flagged("conv1", "conv1.weight", 7, "x = self.conv1(x)"),
        Flagged("conv1", "convolution", 112, "x = self.conv1(x)"),
        Flagged("bn1", "_native_batch_norm_legit_no_training", 112, "x = self.bn1(x)"),
        Flagged("relu", "relu", 112, "x = self.relu(x)"),
        Flagged("maxpool", "max_pool2d_with_indices", 56, "x = self.maxpool(x)"),
        Flagged("fc", "fc.bias", 1000, "x = self.fc(x)"),
        Flagged("fc", "t", 1000, "x = self.fc(x)"),
        Flagged("fc", "addmm", 1000, "x = self.fc(x)"),
    ]
    for layer, width in WIDTHS.items():
        for number in BLOCKS:
            found += _block(f"{layer}.{number}", width, downsample=number == 0 and layer != "layer1")
    return [item for item in found if item.size % alignment]


def _block(block: str, width: int, *, downsample: bool) -> list[Flagged]:
    found = []
    for number, source in ((1, "x"), (2, "out")):
        line = f"out = self.conv{number}({source})"
        found += [
            Flagged(f"{block}.conv{number}", f"{block}.conv{number}.weight", 3, line),
            Flagged(f"{block}.conv{number}", "convolution", width, line),
            Flagged(
                f"{block}.bn{number}", "_native_batch_norm_legit_no_training", width, f"out = self.bn{number}(out)"
            ),
            Flagged(f"{block}.relu", "relu", width, "out = self.relu(out)"),
        ]
    found.append(Flagged(block, "add", width, "out += identity"))
    if downsample:
        line = "identity = self.downsample(x)"
        found += [
            Flagged(f"{block}.downsample.0", "convolution", width, line),
            Flagged(f"{block}.downsample.1", "_native_batch_norm_legit_no_training", width, line),
        ]
    return found


def bert(length: int, alignment: int) -> list[Flagged]:
    """Every finding in BERT's inference graph at batch 1 on the CPU."""
    line = "attn_output, attn_weights = attention_interface("  # of BERT's own file, not of transformers' helper
    found = [
        Flagged(f"encoder.layer.{layer}.attention.self", what, length, line)
        for layer in range(LAYERS)
        for what in ("where", "_scaled_dot_product_flash_attention_for_cpu")
    ]
    return [item for item in found if item.size % alignment]
