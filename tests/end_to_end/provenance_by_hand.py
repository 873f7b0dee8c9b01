"""Which lines each generated kernel must lead to, derived by hand from the architectures.

TorchInductor computes convolutions and matrix products on the CPU with library calls, and fuses what stands between
them, so that each label follows from reading the model's ``forward``: what comes after one library call and before the
next. A label is the set of the kernel's own lines, in the order of execution; lines that only look at a tensor in
another way (slices, expansions) compute nothing and are not among them. Kernels that only copy weights or inputs into
another layout are not listed: how many there are, and where, is Inductor's choice; they must lead to convolutions.
"""

# torchvision/models/resnet.py: ResNet._forward_impl and BasicBlock.forward
STEM = {"x = self.bn1(x)", "x = self.relu(x)", "x = self.maxpool(x)"}
FIRST = {"out = self.bn1(out)", "out = self.relu(out)"}
SECOND = {"out = self.bn2(out)", "out += identity", "out = self.relu(out)"}
DOWNSAMPLED = SECOND | {"identity = self.downsample(x)"}
LAST = SECOND | {"x = self.avgpool(x)"}
PLAIN, WIDER = [FIRST, SECOND], [FIRST, DOWNSAMPLED]

RESNET18 = [STEM, *PLAIN, *PLAIN, *WIDER, *PLAIN, *WIDER, *PLAIN, *WIDER, FIRST, LAST]
"""17 kernels: eight blocks of two, and what follows the first convolution."""

RESNET18_CALLS = [
    "x = self.conv1(x)",
    *["out = self.conv1(x)", "out = self.conv2(out)"] * 2,
    *["out = self.conv1(x)", "out = self.conv2(out)", "identity = self.downsample(x)",
      "out = self.conv1(x)", "out = self.conv2(out)"] * 3,
    "x = self.fc(x)",
]  # fmt: skip
"""The library calls, up to the order of a block's second convolution and its downsampling, which need not wait for
each other."""

RESNET18_COPIES = {"x = self.conv1(x)", "out = self.conv1(x)", "out = self.conv2(out)", "identity = self.downsample(x)"}
"""What a kernel that computes nothing may prepare."""

# transformers/models/bert/modeling_bert.py: BertEmbeddings, BertSdpaSelfAttention, BertSelfOutput, BertIntermediate,
# BertOutput and BertPooler
EMBEDDINGS = {
    "buffered_token_type_ids = torch.gather(buffered_token_type_ids, dim=1, index=position_ids)",
    "inputs_embeds = self.word_embeddings(input_ids)",
    "token_type_embeddings = self.token_type_embeddings(token_type_ids)",
    "embeddings = inputs_embeds + token_type_embeddings",
    "position_embeddings = self.position_embeddings(position_ids)",
    "embeddings = embeddings + position_embeddings",
    "embeddings = self.LayerNorm(embeddings)",
}
NORMALIZED = {"hidden_states = self.LayerNorm(hidden_states + input_tensor)"}
ACTIVATED = {"hidden_states = self.intermediate_act_fn(hidden_states)"}
POOLED = {"pooled_output = self.activation(pooled_output)"}
MASK = "attn_output, attn_weights = attention_interface("
"""The line of the kernels, if any, that turn the mask into the form which the attention's library call takes."""

BERT = [EMBEDDINGS, *[NORMALIZED, ACTIVATED, NORMALIZED] * 12, POOLED]
"""38 kernels, those of the mask apart."""
