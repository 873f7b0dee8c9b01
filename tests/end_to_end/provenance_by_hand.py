"""Which lines each generated kernel must lead to, derived by hand from the architectures.

TorchInductor computes convolutions and matrix products on the CPU with library calls, and fuses what stands between
them, so that each label follows from reading the model's ``forward``: what comes after one library call and before the
next. A label is the set of the kernel's own lines; lines that only look at a tensor in another way (slices, expansions)
compute nothing and are not among them. Kernels that only copy weights or inputs into another layout are not listed: how
many there are, and where, is Inductor's choice; they must lead to convolutions.

A backward runs the forward from its end. A line's gradient has that line; ``a + b`` has none of its own, since both
terms get what comes in. Where several lines read a tensor, its gradients are summed, each when it arrives: the sum has
the line of the gradient that is added, so all of these lines but the last. The gradient of a bias is a sum, and so a
kernel's; those of weights and of what a product reads are products, and so a library's.
"""

from provenance_lines import Line, within

Label = set[Line]

# torchvision/models/resnet.py
_net = within("torchvision.models.resnet:ResNet._forward_impl")
_block = within("torchvision.models.resnet:BasicBlock.forward")
CONV1, BN1, RELU1 = _block("out = self.conv1(x)"), _block("out = self.bn1(out)"), _block("out = self.relu(out)", 1)
CONV2, BN2, RELU2 = _block("out = self.conv2(out)"), _block("out = self.bn2(out)"), _block("out = self.relu(out)", 2)
DOWNSAMPLE, RESIDUAL = _block("identity = self.downsample(x)"), _block("out += identity")
STEM_CONV, STEM_BN, STEM_RELU = _net("x = self.conv1(x)"), _net("x = self.bn1(x)"), _net("x = self.relu(x)")
MAXPOOL, AVGPOOL, FC = _net("x = self.maxpool(x)"), _net("x = self.avgpool(x)"), _net("x = self.fc(x)")

STEM: Label = {STEM_BN, STEM_RELU, MAXPOOL}
FIRST: Label = {BN1, RELU1}
SECOND: Label = {BN2, RESIDUAL, RELU2}
DOWNSAMPLED, LAST = SECOND | {DOWNSAMPLE}, SECOND | {AVGPOOL}
PLAIN, WIDER = [FIRST, SECOND], [FIRST, DOWNSAMPLED]

RESNET18 = [STEM, *PLAIN, *PLAIN, *WIDER, *PLAIN, *WIDER, *PLAIN, *WIDER, FIRST, LAST]
"""17 kernels: eight blocks of two, and what follows the first convolution."""

RESNET18_TRAINING = [{STEM_BN, BN1, BN2, DOWNSAMPLE}, *RESNET18]
"""Before them, each batch norm counts its batches: one kernel for all counts."""

GRADIENT_FIRST: Label = {RELU1, BN1}
GRADIENT_SECOND: Label = {CONV1, RELU2, BN2}
"""The next block reads what this one returns twice, as ``conv1(x)`` and later as ``identity``: summed at ``conv1``."""
GRADIENT_DOWNSAMPLED = GRADIENT_SECOND | {DOWNSAMPLE}
GRADIENT_LAST: Label = {AVGPOOL, RELU2, BN2}

_back_plain, _back_wider = [GRADIENT_SECOND, GRADIENT_FIRST], [GRADIENT_DOWNSAMPLED, GRADIENT_FIRST]
RESNET18_BACKWARD = [
    *[GRADIENT_LAST, GRADIENT_FIRST],
    *[GRADIENT_DOWNSAMPLED | {AVGPOOL}, GRADIENT_FIRST],  # the last block's identity hands on the pool's gradient
    *_back_plain, *_back_wider, *_back_plain, *_back_wider, *_back_plain, *_back_plain,
    {CONV1, MAXPOOL}, {STEM_RELU, STEM_BN}, {FC},
]  # fmt: skip
"""19 kernels. The last, the gradient of the classifier's bias, is wanted by none of the others."""

RESNET18_BLOCKS = [f"layer{layer}.{block}" for layer in (1, 2, 3, 4) for block in (0, 1)]
"""Of the kernels with the label FIRST, in this order, or backwards GRADIENT_FIRST."""

RESNET18_CALLS = [
    STEM_CONV, *[CONV1, CONV2] * 2, *[CONV1, CONV2, DOWNSAMPLE, CONV1, CONV2] * 3, FC,
]  # fmt: skip
"""The library calls, up to the order of a block's second convolution and its downsampling, which need not wait for
each other."""

RESNET18_COPIES: Label = {STEM_CONV, CONV1, CONV2, DOWNSAMPLE}
"""What a kernel that computes nothing may prepare."""
RESNET18_COPIES_FIRST = STEM_CONV
"""What the first such kernel prepares most for: the image and the first weight, 639,744 of its 1,229,568 bytes."""

# transformers/models/bert/modeling_bert.py
_bert = "transformers.models.bert.modeling_bert:"
_embeddings, _attention = within(f"{_bert}BertEmbeddings.forward"), within(f"{_bert}BertSelfAttention.forward")
_attended, _wide = within(f"{_bert}BertSelfOutput.forward"), within(f"{_bert}BertIntermediate.forward")
_narrow, _pooler = within(f"{_bert}BertOutput.forward"), within(f"{_bert}BertPooler.forward")
MASK = within(f"{_bert}BertModel._create_attention_masks")("attention_mask = create_bidirectional_mask(")
WORDS = _embeddings("inputs_embeds = self.word_embeddings(input_ids)")
TYPES = _embeddings("token_type_embeddings = self.token_type_embeddings(token_type_ids)")
POSITIONS = _embeddings("position_embeddings = self.position_embeddings(position_ids)")
EMBEDDINGS_NORM = _embeddings("embeddings = self.LayerNorm(embeddings)")
EMBEDDINGS_DROPOUT = _embeddings("embeddings = self.dropout(embeddings)")
QUERY = _attention("query_layer = self.query(hidden_states).view(*hidden_shape).transpose(1, 2)")
KEY = _attention("key_layer = self.key(hidden_states).view(*hidden_shape).transpose(1, 2)")
VALUE = _attention("value_layer = self.value(hidden_states).view(*hidden_shape).transpose(1, 2)")
ATTENTION = _attention("attn_output, attn_weights = attention_interface(")
_dense, _dropout = "hidden_states = self.dense(hidden_states)", "hidden_states = self.dropout(hidden_states)"
_norm = "hidden_states = self.LayerNorm(hidden_states + input_tensor)"
ATTENDED_DENSE, ATTENDED_DROPOUT, ATTENDED_NORM = _attended(_dense), _attended(_dropout), _attended(_norm)
WIDE_DENSE, GELU = _wide(_dense), _wide("hidden_states = self.intermediate_act_fn(hidden_states)")
NARROW_DENSE, NARROW_DROPOUT, NARROW_NORM = _narrow(_dense), _narrow(_dropout), _narrow(_norm)
FIRST_TOKEN = _pooler("first_token_tensor = hidden_states[:, 0]")
POOLER_DENSE = _pooler("pooled_output = self.dense(first_token_tensor)")
TANH = _pooler("pooled_output = self.activation(pooled_output)")

EMBEDDINGS: Label = {
    WORDS, TYPES, _embeddings("embeddings = inputs_embeds + token_type_embeddings"),
    POSITIONS, _embeddings("embeddings = embeddings + position_embeddings"), EMBEDDINGS_NORM,
}  # fmt: skip
MASKED: Label = {MASK, ATTENTION}
"""The attention's scores, or in inference the mask alone, which one library call takes beside query, key and value."""

BERT = [EMBEDDINGS, *[MASKED, {ATTENDED_NORM}, {GELU}, {NARROW_NORM}] * 12, {TANH}]
"""50 kernels."""

BERT_TRAINING = [
    EMBEDDINGS | {MASK},
    *[{ATTENTION}, {ATTENTION}, MASKED, {ATTENTION}, {ATTENDED_NORM}, {GELU}, {NARROW_NORM}] * 12,
    {TANH},
]
"""86 kernels. With dropout within it the attention is computed in parts, all on one line of the model: the key's and
the query's scaling, the softmax of the masked scores, the result in another layout. The dropouts themselves draw random
numbers as eager does, which is a library's work."""

_before_attention: Label = {VALUE, KEY, QUERY}
"""A layer reads its input four times, last as ``input_tensor``: summed at the other three."""
GRADIENT_GELU: Label = {GELU, NARROW_DENSE}
"""With the bias of the product that comes in."""
_back_layer: list[Label] = [
    GRADIENT_GELU,
    {WIDE_DENSE, ATTENDED_NORM, ATTENDED_DROPOUT},  # its bias, and the sum with what skipped it as ``input_tensor``
    {ATTENDED_DENSE},
    {ATTENTION},  # softmax
    {VALUE},
    {VALUE, ATTENTION},  # the value's bias, the key's scaling
    {KEY, QUERY, ATTENTION},  # the key's bias, the query's layout and scaling
]
_softmax = 3
_back_first_layer = [label | {MASK} if index == _softmax else label for index, label in enumerate(_back_layer)]
"""The first layer's softmax alone is computed anew in the backward, from its masked scores."""

BERT_BACKWARD = [
    {TANH, POOLER_DENSE},
    {FIRST_TOKEN, NARROW_NORM, NARROW_DROPOUT},
    *[*_back_layer, _before_attention | {NARROW_NORM, NARROW_DROPOUT}] * 11,
    *_back_first_layer,
    _before_attention | {EMBEDDINGS_NORM, EMBEDDINGS_DROPOUT, WORDS, TYPES, POSITIONS},
]
"""98 kernels."""

LABELS = {
    ("resnet18", "inference"): {"g0.forward": RESNET18},
    ("resnet18", "training"): {"g0.forward": RESNET18_TRAINING, "g0.backward": RESNET18_BACKWARD},
    ("bert", "inference"): {"g0.forward": BERT},
    ("bert", "training"): {"g0.forward": BERT_TRAINING, "g0.backward": BERT_BACKWARD},
}

LINES = {
    "resnet18": set().union(*RESNET18_TRAINING, *RESNET18_BACKWARD, RESNET18_CALLS),
    "bert": set().union(*BERT_TRAINING, *BERT_BACKWARD),
}
"""Every line that may be a kernel's on a device where other operations are a library's and others are fused."""
