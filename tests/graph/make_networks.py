# SPDX-License-Identifier: Apache-2.0
"""Exports small networks of torchvision, timm and transformers with random weights: NAME.onnx and NAME.npz (its inputs, 8 samples) in a folder.

usage: make_networks.py FOLDER [NAME...]
Needs torch, torchvision, timm, transformers and onnxscript (tests/peers.sh networks). Half of them are exported by torch's older exporter, half by its newer one;
--other-exporter changes that.
"""
import os
import sys
import warnings

import numpy as np
import torch
from torch import nn

warnings.filterwarnings("ignore")
SAMPLES = 8


def images(channels, size):
    return {"image": torch.randn(SAMPLES, channels, size, size)}


def tokens(length, vocabulary=64):
    return torch.randint(1, vocabulary, (SAMPLES, length))


def resnet():
    from timm.models.resnet import Bottleneck, ResNet
    return ResNet(Bottleneck, [1, 1, 1, 1], num_classes=10, channels=(8, 16, 16, 32), stem_width=16, stem_type="deep"), images(3, 32)


def mobilenet_v3():
    from torchvision.models.mobilenetv3 import MobileNetV3, _mobilenet_v3_conf
    return MobileNetV3(*_mobilenet_v3_conf("mobilenet_v3_small", width_mult=0.25), num_classes=10), images(3, 64)


def efficientnet():
    from torchvision.models.efficientnet import EfficientNet, _efficientnet_conf
    return EfficientNet(_efficientnet_conf("efficientnet_b0", width_mult=0.25, depth_mult=0.5)[0], dropout=0.0, num_classes=10), images(3, 64)


def convnext():
    from timm.models.convnext import ConvNeXt
    return ConvNeXt(num_classes=10, depths=(1, 1, 1, 1), dims=(8, 16, 24, 32)), images(3, 64)


def vit():
    from timm.models.vision_transformer import VisionTransformer
    return VisionTransformer(img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2, num_classes=10), images(3, 32)


def swin():
    from torchvision.models.swin_transformer import SwinTransformer, SwinTransformerBlockV2, PatchMergingV2
    return SwinTransformer([2, 2], 16, [2, 2], [2, 4], [4, 4], num_classes=10, block=SwinTransformerBlockV2, downsample_layer=PatchMergingV2), images(3, 32)


def densenet():
    from torchvision.models import DenseNet
    return DenseNet(growth_rate=8, block_config=(2, 2, 2), num_init_features=16, bn_size=2, num_classes=10), images(3, 32)


def segmentation():
    from torchvision.models._utils import IntermediateLayerGetter
    from torchvision.models.mobilenetv3 import MobileNetV3, _mobilenet_v3_conf
    from torchvision.models.segmentation.lraspp import LRASPP
    body = MobileNetV3(*_mobilenet_v3_conf("mobilenet_v3_small", width_mult=0.5, dilated=True)).features
    low, high = body[1].out_channels, body[12].out_channels
    whole = LRASPP(IntermediateLayerGetter(body, {"1": "low", "12": "high"}), low, high, 5, 16)

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.whole = whole

        def forward(self, image):
            return self.whole(image)["out"]
    return Plain(), images(3, 48)


def bert():
    from transformers import BertConfig, BertForSequenceClassification
    config = BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, max_position_embeddings=32, num_labels=3, attn_implementation="eager")

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.whole = BertForSequenceClassification(config)

        def forward(self, input_ids, attention_mask):
            return self.whole(input_ids=input_ids, attention_mask=attention_mask).logits
    mask = (torch.arange(16)[None] < torch.randint(8, 17, (SAMPLES, 1))).long()
    return Plain(), {"input_ids": tokens(16), "attention_mask": mask}


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=64, max_position_embeddings=32,
                         attn_implementation="eager", use_cache=False)

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.whole = LlamaForCausalLM(config)

        def forward(self, input_ids):
            return self.whole(input_ids=input_ids, use_cache=False).logits
    return Plain(), {"input_ids": tokens(16)}


def t5():
    from transformers import T5Config, T5ForConditionalGeneration
    config = T5Config(vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, feed_forward_proj="gated-gelu", use_cache=False)

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.whole = T5ForConditionalGeneration(config)

        def forward(self, input_ids, decoder_input_ids):
            return self.whole(input_ids=input_ids, decoder_input_ids=decoder_input_ids, use_cache=False).logits
    return Plain(), {"input_ids": tokens(12), "decoder_input_ids": tokens(6)}


def speech():
    """Convolutions over time, a GRU in both directions and an LSTM."""
    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.front = nn.Sequential(nn.Conv1d(8, 16, 5, stride=2, padding=2), nn.BatchNorm1d(16), nn.SiLU(), nn.Conv1d(16, 16, 3, padding=1, groups=4), nn.GLU(1))
            self.gru = nn.GRU(8, 12, batch_first=True, bidirectional=True)
            self.lstm = nn.LSTM(24, 16, num_layers=2, batch_first=True)
            self.norm = nn.LayerNorm(16)
            self.out = nn.Linear(16, 10)

        def forward(self, sound):
            x = self.front(sound).transpose(1, 2)
            x = self.gru(x)[0]
            return torch.log_softmax(self.out(self.norm(self.lstm(x)[0])), -1)
    return Plain(), {"sound": torch.randn(SAMPLES, 8, 40)}


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel
    config = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2, attn_implementation="sdpa", use_cache=False)

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.whole = GPT2LMHeadModel(config)

        def forward(self, input_ids):
            return self.whole(input_ids=input_ids, use_cache=False).logits
    return Plain(), {"input_ids": tokens(16)}


def detection():
    """A detector's body, feature pyramid and head, without the suppression of overlapping boxes."""
    from torchvision.models.detection.retinanet import RetinaNetHead
    from torchvision.models.regnet import BlockParams, RegNet
    from torchvision.ops import FeaturePyramidNetwork

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = RegNet(BlockParams([1, 1, 1, 1], [8, 16, 16, 24], [8, 8, 8, 8], [1.0] * 4, [2, 2, 2, 2], 0.25), num_classes=2)
            self.pyramid = FeaturePyramidNetwork([16, 24], 16)
            self.head = RetinaNetHead(16, 3, 4, norm_layer=lambda n: nn.GroupNorm(4, n))

        def forward(self, image):
            x = self.body.stem(image)
            levels = {}
            for name, stage in self.body.trunk_output.named_children():
                x = stage(x)
                levels[name] = x
            told = self.head(list(self.pyramid({n: levels[n] for n in ("block3", "block4")}).values()))
            return told["cls_logits"], told["bbox_regression"]
    return Plain(), images(3, 64)


# Networks, and whether the newer exporter writes the file.
NETWORKS = {resnet: False, mobilenet_v3: True, efficientnet: False, convnext: True, vit: False, swin: True, densenet: True, segmentation: False, detection: True, bert: False, llama: True,
            t5: True, speech: False, gpt2: True}


def settle(network, inputs):
    """Random weights with statistics of normalizations that fit, so that no layer's output vanishes."""
    network.train()
    for part in network.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    with torch.no_grad():
        for _ in range(20):
            network(*inputs.values())
        for part in network.modules():
            if isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d)):
                part.weight.copy_(0.5 + torch.rand_like(part.weight))
                part.bias.copy_(0.3 * torch.randn_like(part.bias))
        for _ in range(20):
            network(*inputs.values())
        for value in network.parameters():  # many biases start as zeros
            if value.dim() == 1 and not value.any():
                value.copy_(0.1 * torch.randn_like(value))
    return network.eval()


def export(make, newer, folder):
    torch.manual_seed(7)
    np.random.seed(7)
    network, inputs = make()
    network = settle(network, inputs)
    name = os.path.join(folder, make.__name__)
    with torch.no_grad():
        outputs = network(*inputs.values())
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    names = [f"y{i}" for i in range(len(outputs))]
    common = dict(input_names=list(inputs), output_names=names, verbose=False)
    given = tuple(inputs.values())
    if newer:
        batch = torch.export.Dim("batch", min=1, max=64)
        shapes = tuple({0: batch} for _ in inputs)
        torch.onnx.export(network, given, name + ".onnx", dynamo=True, external_data=False, dynamic_shapes=shapes, **common)
    else:
        torch.onnx.export(network, given, name + ".onnx", dynamo=False, opset_version=17, dynamic_axes={n: {0: "batch"} for n in [*inputs, *names]}, **common)
    np.savez(name + ".npz", **{n: v.numpy() for n, v in inputs.items()})
    return outputs


if __name__ == "__main__":
    folder, wanted = sys.argv[1], [a for a in sys.argv[2:] if not a.startswith("--")]
    os.makedirs(folder, exist_ok=True)
    for make, newer in NETWORKS.items():
        if wanted and make.__name__ not in wanted:
            continue
        newer = newer != ("--other-exporter" in sys.argv)
        try:
            export(make, newer, folder)
            print(f"{make.__name__}: {os.path.getsize(os.path.join(folder, make.__name__ + '.onnx'))} bytes, {'newer' if newer else 'older'} exporter", flush=True)
        except Exception as error:
            print(f"{make.__name__}: not exported: {' '.join(str(error).split())[:300]}", flush=True)
