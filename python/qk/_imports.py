# SPDX-License-Identifier: Apache-2.0
"""Configurations of other tools as qk has them: AMD Quark, Intel Neural Compressor, NNCF, AIMET's encodings. None need be installed.

What cannot be taken is a ConfigError that names the key.
"""

import difflib
import json
import os
import re

from . import _files
from ._plan import Plan


class ConfigError(ValueError):
    """A key of another tool's configuration that qk cannot do."""


class Imported:
    """What a configuration says: plan (a qk.Plan), options of qk.quantize or qk.search, and which of the two it asks for.

    run(model, data) does it. patterns are regular expressions for names of nodes that stay in float32: plan_for(model) has the names.
    """

    def __init__(self, verb, plan, options, origin, patterns=(), validate=True):
        self.verb, self.plan, self.options, self.origin, self.patterns, self._validate = verb, plan, options, origin, tuple(patterns), validate

    def plan_for(self, model):
        """Returns the plan for a model: with the names that patterns mean in it."""
        if not self.patterns:
            return self.plan
        from . import _models

        names, plan = [n["name"] for n in _models.load(model).inspect(tensors=True)["layer_names"]], Plan(self.plan)
        for pattern in self.patterns:
            meant = [n for n in names if re.match(pattern, n)]
            if not meant and self._validate:
                raise ConfigError(f"patterns: {pattern!r} is no node's name in the model; validate=False passes over it")
            plan.document["requests"] += [{"layer": n, "exclude": True} for n in meant]
        return plan

    def run(self, model, data=None, **more):
        from . import _models

        options = {**self.options, **more}
        if self.plan is not None and "plan" not in options:
            options["plan"] = self.plan_for(model)
        return getattr(_models, self.verb)(model, data, **options)

    def __repr__(self):
        return f"<{self.origin}: qk.{self.verb} with {self.options}, plan {self.plan.to_dict() if self.plan else None}>"


def _fields(value):
    """Returns a configuration as a dictionary, whether it is one or an object with attributes."""
    if value is None or isinstance(value, (str, bytes, bool, int, float, list, tuple)):
        raise TypeError(f"a configuration is a dictionary or an object of the tool's, not {value!r}")
    if isinstance(value, dict):
        return dict(value)
    given = {}
    for name in dir(value):
        if not name.startswith("_") and not callable(getattr(value, name)) or name in ("EvaluateFunction",):
            given[name] = getattr(value, name)
    return given


def _is_set(value):
    """Is true for what a caller said: objects have None, False and empty lists for what nobody did."""
    return value is not None and value is not False and not (isinstance(value, (list, tuple, dict, set, str)) and not value)


def _only(fields, known, where, tool):
    """Refuses keys that nothing here reads."""
    for key, value in fields.items():
        if key not in known and _is_set(value):
            raise ConfigError(f"{where}{key}: qk has nothing for this key of {tool}")


def _word(value):
    """Returns the name of an enumeration's member, or a text's last part: VitisQuantType.QBFP, "QuantType.QInt8" -> "QBFP", "QInt8"."""
    name = getattr(value, "name", None) or str(value)
    return name.rpartition(".")[2]


_quark_types = {
    "QInt8": "int8", "QUInt8": "uint8", "QInt16": "int16", "QUInt16": "uint16", "QInt4": "int4", "QUInt4": "uint4", "QInt32": "int32",
    "QUInt32": "uint32", "QFloat16": "fp16", "QBFloat16": "bf16", "QBloat16": "bf16", "QBFP": "bfp16", "QMX4": "mx4", "QMX6": "mx6",
    "QMX9": "mx9", "QMXINT8": "mxint8", "QMXFP8E4M3": "mxfp8_e4m3", "QMXFP8E5M2": "mxfp8_e5m2", "QMXFP6E3M2": "mxfp6_e3m2",
    "QMXFP6E2M3": "mxfp6_e2m3", "QMXFP4E2M1": "mxfp4", "QMXFP4": "mxfp4",
}
_block_formats = ("bfp16", "mx4", "mx6", "mx9", "mxint8", "mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4", "bf16")
_quark_methods = {
    "MinMax": {"method": "min_max"}, "Entropy": {"method": "entropy"}, "Percentile": {"method": "percentile"},
    "LayerwisePercentile": {"method": "layerwise_percentile"}, "NonOverflow": {"pow2": "non_overflow"}, "MinMSE": {"pow2": "min_mse"},
}
# Keys that say how Quark itself works, or what is so in qk anyway.
_quark_ignored = {
    "quant_format", "extra_options", "optimize_model", "use_external_data_format", "execution_providers", "print_summary",
    "log_severity_level", "debug_mode", "crypto_mode", "ignore_warnings", "include_auto_mp", "specific_tensor_precision",
}
# Changes that Quark makes to a model, and checks: off is what qk does, on is nothing that it has.
_quark_switches = {
    "ActivationScaled", "WeightScaled", "QuantizeFP16", "UseUnsignedReLU", "RemoveInputInit", "SimplifyModel", "EnableSubgraph",
    "ForceQuantizeNoInputCheck", "MatMulConstBOnly", "AddQDQPairToWeight", "DedicatedQDQPair", "UseQDQVitisCustomOps",
    "CalibMovingAverage", "UseRandomData", "Int16Scale", "Int16Bias", "ConvertBNToConv", "ConvertReduceMeanToGlobalAvgPool",
    "SplitLargeKernelPool", "ConvertSplitToSlice", "FuseInstanceNorm", "FuseL2Norm", "FuseGelu", "FuseLayerNorm", "ConvertClipToRelu",
    "SimulateDPU", "ConvertLeakyReluToDPUVersion", "ConvertSigmoidToHardSigmoid", "ConvertHardSigmoidToDPUVersion",
    "ConvertAvgPoolToDPUVersion", "ConvertReduceMeanToDPUVersion", "ConvertSoftmaxToDPUVersion", "NPULimitationCheck", "AdjustShiftCut",
    "AdjustShiftBias", "AdjustShiftRead", "AdjustShiftWrite", "AdjustHardSigmoid", "AdjustShiftSwish", "AlignConcat", "AlignPool", "AlignPad",
    "AlignSlice", "AlignTranspose", "AlignReshape", "ReplaceClip6Relu", "CopySharedInit", "CopyBiasInit", "RemoveQDQConvClip",
    "RemoveQDQConvRelu", "RemoveQDQConvLeakyRelu", "RemoveQDQConvPRelu", "RemoveQDQConvGelu", "RemoveQDQMulAdd", "RemoveQDQBetweenOps",
    "RemoveQDQInstanceNorm", "FoldBatchNorm", "FoldRelu", "FastFinetune",
}


def _quark_format(value, key):
    if isinstance(value, dict):
        return value["format"]
    if value == "bf16":
        return value
    word = _word(value)
    if word not in _quark_types:
        raise ConfigError(f"{key}: qk knows no type {word}; it knows {', '.join(_quark_types)}")
    return _quark_types[word]


def _quark_precision(value, method, key, weight):
    """Returns a precision with the calibration method, where the format has scales."""
    if isinstance(value, dict) or value == "bf16":
        return value
    name = _quark_format(value, key)
    if name in _block_formats or name == "fp16":
        return {"format": name, "semantics": "quark"} if name != "bf16" else name
    what = {"format": name, "semantics": "quark"}
    if "pow2" in method:
        what.update(pow2=method["pow2"], symmetric=True)
    elif not weight:
        what.update(method)
    return what


_aligned = {"ActivationSymmetric": True}
_percentile = {"Percentile": 99.9999}
_blocks = ("BFP", "MX4", "MX6", "MX9", "MXINT8", "MXFP8E5M2", "MXFP8E4M3", "MXFP6E3M2", "MXFP6E2M3", "MXFP4E2M1")
# Quark's named configurations: types of activations and weights, calibration, extra options, and the endings that Quark has for each.
_quark_named = {
    "XINT8": ("QUInt8", "QInt8", "MinMSE", _aligned, ("ADAROUND", "ADAQUANT")),
    "S8S8_AAWS": ("QInt8", "QInt8", "Percentile", _percentile, ("ADAROUND", "ADAQUANT")),
    "U8S8_AAWS": ("QUInt8", "QInt8", "Percentile", {}, ("ADAROUND", "ADAQUANT")),
    "U8U8_AAWA": ("QUInt8", "QUInt8", "Percentile", {"WeightSymmetric": False}, ()),
    "S16S8_ASWS": ("QInt16", "QInt8", "Percentile", _aligned, ("ADAROUND", "ADAQUANT")),
    "U16S8_AAWS": ("QUInt16", "QInt8", "Percentile", {}, ("ADAROUND", "ADAQUANT")),
    "A8W8": ("QInt8", "QInt8", "MinMax", _aligned, ("ADAROUND", "ADAQUANT")),
    "A16W8": ("QInt16", "QInt8", "MinMax", _aligned, ("ADAROUND", "ADAQUANT")),
    "FP16": ("QFloat16", "QFloat16", "MinMax", {}, ("ADAQUANT",)),
    "BF16": ("QBFloat16", "QBFloat16", "MinMax", {}, ("ADAQUANT",)),
    **{"BFP16" if name == "BFP" else name: ("Q" + name, "Q" + name, "MinMax", {}, ("ADAQUANT",)) for name in _blocks},
    "S16S16_MIXED_S8S8": ("QInt16", "QInt16", "Percentile", {**_percentile, "AutoMixprecision": {"TargetQuantType": "QInt8"}}, ()),
    **{f"BF16_MIXED_{name}": ("QBFloat16", "QBFloat16", "MinMax", {
        "QuantizeBias": False, "AutoMixprecision": {"TargetQuantType": kind, "DualQuantNodes": True}}, ("ADAQUANT",))
       for name, kind in (("BFP16", "QBFP"), ("MXINT8", "QMXINT8"))},
    "BF16_BFP16": ("QBFloat16", "QBFP", "MinMax", {}, ()),
    "BF16_MXINT8": ("QBFloat16", "QMXINT8", "MinMax", {}, ()),
    "MX9_INT8": ("QMX9", "QInt8", "MinMax", {}, ()),
    **{f"{size}_{kind}_DEFAULT": (f"QU{size.title()}", f"Q{size.title()}", "MinMax", {}, ())
       for size in ("INT8", "INT16") for kind in ("CNN", "TRANSFORMER")},
    **{f"{size}_{kind}_ACCURATE": (f"QU{size.title()}", f"Q{size.title()}", "Percentile", _percentile, ())
       for size in ("INT8", "INT16") for kind in ("CNN", "TRANSFORMER")},
}


def _quark_by_name(name):
    """Returns what one of Quark's named configurations asks for: its formats, calibration and learned rounding. What Quark changes in a
    graph for its own processors (AlignConcat, FoldRelu, ...) is not in it."""
    base, _, ending = name.rpartition("_")
    learned = ending if base in _quark_named and ending in _quark_named[base][4] else None
    entry = _quark_named.get(base if learned else name)
    if entry is None:
        known = [*_quark_named, *(f"{n}_{e}" for n, (*_, endings) in _quark_named.items() for e in endings)]
        near = difflib.get_close_matches(name.upper(), known, 1)
        raise ConfigError(f"qk knows no configuration {name!r} of Quark's{f'; did you mean {near[0]!r}?' if near else ''}; it knows {', '.join(known)}")
    activation, weight, method, extra, _ = entry
    found = from_quark({"activation_type": activation, "weight_type": weight, "calibrate_method": method, "extra_options": dict(extra)})
    if learned or name.endswith("_ACCURATE"):
        found.options["weight_rounding"] = (learned or "ADAROUND").lower()
    return found


def from_quark(config):
    """Returns what a configuration of AMD Quark for ONNX asks for: a QConfig, the older Config or QuantizationConfig, a dictionary of the
    same keys, or the name of one of Quark's ("XINT8", "A8W8", "BF16_MIXED_BFP16", ...)."""
    if isinstance(config, str):
        return _quark_by_name(config)
    fields = _fields(config)
    if "global_quant_config" in fields:
        _only(fields, {"global_quant_config", "name", "version"}, "", "Quark's")
        fields = _fields(fields["global_quant_config"])
    elif "global_config" in fields:
        fields = _quark_new(_fields(config))
    extra = dict(fields.get("extra_options") or {})
    method_word = _word(fields.get("calibrate_method", "MinMax"))
    if method_word not in _quark_methods:
        raise ConfigError(f"calibrate_method: qk knows no {method_word}; it knows {', '.join(_quark_methods)}")
    method = _quark_methods[method_word]
    activation, weight = fields.get("activation_type", "QInt8"), fields.get("weight_type", "QInt8")
    document = {"qk": "requests", "version": 1, "default": {}, "requests": []}
    default = {"activation": _quark_precision(activation, method, "activation_type", False),
               "weight": _quark_precision(weight, method, "weight_type", True)}
    document["default"] = default
    document["requests"] += fields.pop("_requests", [])
    if (bias := fields.pop("_bias", None)) is not None:
        default["bias"] = bias
    if fields.pop("weights_only", False):
        default.pop("activation")
    if _quark_format(activation, "activation_type") in _block_formats:
        document["placement"] = "all"
    options, only_types = {}, None
    for key, value in fields.items():
        if key == "quantize_bias" and value is False:
            default["bias"] = "fp32"
        if key in ("calibrate_method", "activation_type", "weight_type") or key in _quark_ignored or not _is_set(value):
            continue
        if key == "per_channel":
            document["per_channel"] = True
        elif key == "nodes_to_exclude":
            document["requests"] += [{"layer": n, "exclude": True} for n in value]
        elif key == "op_types_to_quantize":
            only_types = list(value)
        elif key in ("include_cle", "include_fast_ft", "include_sq", "include_rotation", "include_gptq"):
            raise ConfigError(f"{key}: say it to qk itself (smooth_quant=, rotation=, weight_rounding= of qk.quantize)")
        elif key == "quantize_bias" and value is True:
            continue
        else:
            raise ConfigError(f"{key}: qk has nothing for this key of Quark's")
    automatic = extra.pop("AutoMixprecision", None)
    if not fields.get("include_auto_mp", automatic is not None):
        automatic = None
    elif not automatic:
        raise ConfigError("include_auto_mp: say extra_options['AutoMixprecision'], too")
    for kind, tensors in dict(extra.pop("MixedPrecisionTensor", {}) or {}).items():
        document["requests"].append({"tensor": list(tensors), "format": _quark_precision(kind, method, "MixedPrecisionTensor", False)})
    for key, value in extra.items():
        if key == "Percentile":
            document["calibration"] = {"method": "percentile", "percentile": value}
        elif key == "ActivationSymmetric":
            if value and isinstance(default["activation"], dict):
                default["activation"]["symmetric"] = True
        elif key == "WeightSymmetric":
            if not value and isinstance(default["weight"], dict):
                default["weight"]["symmetric"] = False
        elif key == "QuantizeBias":
            if not value:
                default["bias"] = "fp32"
        elif key == "Int32Bias" and value:
            default.setdefault("bias", "int32")
        elif _is_set(value) or key not in _quark_switches:
            raise ConfigError(f"extra_options[{key!r}]: qk has nothing for this key of Quark's")
    if only_types is not None:  # these types alone: they have the default's precisions, and nothing is asked of the others
        document["requests"].insert(0, {"op_type": only_types, **document.pop("default")})
    if automatic is None:
        return Imported("quantize", Plan(document), options, "Quark")
    automatic = dict(automatic)
    targets = automatic.pop("TargetOpType", None)
    types = ["Conv", "ConvTranspose", "Gemm", "MatMul"] if targets is None else list(targets)
    one = automatic.pop("TargetQuantType", None)
    if (layer := automatic.pop("TargetLayerConfig", None)) is not None:
        of_layer = _fields(layer)
        _only(of_layer, {"activation", "input_tensors", "weight", "bias", "name"}, "AutoMixprecision.TargetLayerConfig.", "Quark's")
        for side, keys in (("ActTargetQuantType", ("input_tensors", "activation")), ("WeightTargetQuantType", ("weight",))):
            spec = next((of_layer[k] for k in keys if of_layer.get(k) is not None), None)
            if spec is not None:
                automatic[side] = _quark_spec(spec, f"AutoMixprecision.TargetLayerConfig.{keys[0]}", side.startswith("Weight"))
    narrow_activation, narrow_weight = automatic.pop("ActTargetQuantType", one), automatic.pop("WeightTargetQuantType", one)
    if narrow_activation is None or narrow_weight is None:
        raise ConfigError("AutoMixprecision: give TargetQuantType, or ActTargetQuantType and WeightTargetQuantType")
    index = automatic.pop("OutputIndex", 0)
    dual = automatic.pop("DualQuantNodes", False)
    l2, top1, function = (automatic.pop(k, None) for k in ("L2Target", "Top1AccTarget", "EvaluateFunction"))
    strategy = automatic.pop("MixprecisionStrategy", None)
    for key in automatic:
        raise ConfigError(f"AutoMixprecision[{key!r}]: qk has nothing for this key of Quark's")
    if l2 is not None and top1 is not None:
        raise ConfigError("AutoMixprecision: give L2Target or Top1AccTarget, not both")
    if function is not None and top1 is None:
        raise ConfigError("AutoMixprecision['EvaluateFunction']: give Top1AccTarget, how much less than the baseline it may return")
    if strategy is not None:
        raise ConfigError("AutoMixprecision['MixprecisionStrategy']: choose strategy= of qk.search")
    if l2 is None and top1 is None:  # without a target every such layer gets the other formats
        document["requests"].append({"op_type": types, "input": _quark_precision(narrow_activation, method, "ActTargetQuantType", False),
                                     "weight": _quark_precision(narrow_weight, method, "WeightTargetQuantType", True)})
        document["boundary"] = "dual" if dual else "wider"
        return Imported("quantize", Plan(document), options, "Quark")
    if only_types is not None:
        raise ConfigError("AutoMixprecision with a target and op_types_to_quantize: say the types as AutoMixprecision's TargetOpType")
    for key, said in (("QuantizeBias", default.get("bias") not in (None, "int32")), ("weights_only", "activation" not in default)):
        if said:
            raise ConfigError(f"AutoMixprecision with a target and {key}: qk.search has nothing for this key of Quark's")
    if document["requests"]:
        raise ConfigError("AutoMixprecision with a target and MixedPrecisionTensor or exclusions: qk.search takes these as layers=, exclude=")
    options.update(wide=f"{_quark_format(activation, 'activation_type')}/{_quark_format(weight, 'weight_type')}",
                   narrow=f"{_quark_format(narrow_activation, 'ActTargetQuantType')}/{_quark_format(narrow_weight, 'WeightTargetQuantType')}",
                   output_index=index, semantics="quark")
    if targets is not None:  # else those of Quark's default, which a search takes anyway
        options["op_types"] = types
    if document.get("per_channel"):
        options["per_channel"] = True
    if "pow2" in method:
        options.update(pow2=method["pow2"], symmetric=True)
    elif method["method"] != "min_max":
        options["calibration_method"] = method["method"]
    if "calibration" in document:
        options["percentile"] = document["calibration"]["percentile"]
    for name, word in (("activation", "symmetric"), ("weight", "asymmetric_weights")):
        if isinstance(default[name], dict) and default[name].get("symmetric") is (name == "activation"):
            options[word] = True
    if dual:
        options["dual"] = True
    if l2 is not None:
        options["target_l2"] = l2
    elif function is not None:
        options.update(eval_func=function, eval_func_path=True, higher_is_better=True, target_drop=top1)
    else:
        options["target_top1_drop"] = top1
    return Imported("search", None, options, "Quark")


_quark_specs = {
    "int8": "int8", "uint8": "uint8", "xint8": "int8", "int16": "int16", "uint16": "uint16", "int32": "int32", "uint32": "uint32",
    "float16": "fp16", "bfloat16": "bf16", "bfp16": "bfp16", "mx4": "mx4", "mx6": "mx6", "mx9": "mx9", "mxint8": "mxint8",
    "mxfp4e2m1": "mxfp4", "mxfp6e3m2": "mxfp6_e3m2", "mxfp6e2m3": "mxfp6_e2m3", "mxfp8e5m2": "mxfp8_e5m2", "mxfp8e4m3": "mxfp8_e4m3",
}


def _quark_data_type(value, key):
    """Returns the format of a data type (Int8, an instance or its name) of the newer configurations."""
    name = value if isinstance(value, str) else getattr(value, "__name__", None) or type(value).__name__
    format = _quark_specs.get(name.lower().replace("_", "").removesuffix("spec"))
    if format is None:
        raise ConfigError(f"{key}: qk knows no type {name}; it knows {', '.join(_quark_specs)}")
    return format


def _quark_spec(spec, key, weight):
    """Returns the precision of a QTensorConfig (Int8Spec, BFP16Spec, ...)."""
    if isinstance(spec, (str, type)):
        spec = {"data_type": spec}
    fields = _fields(spec)
    _only(fields, {"data_type", "symmetric", "scale_type", "calibration_method", "quant_granularity", "name"}, f"{key}.", "Quark's")
    what = {"format": _quark_data_type(fields.get("data_type") or type(spec).__name__, key)}
    scale, granularity = _word(fields.get("scale_type", "Float32")), _word(fields.get("quant_granularity", "Tensor"))
    if not scale.lower().startswith(("float", "power")):
        raise ConfigError(f"{key}.scale_type: qk knows Float32 and PowerOf2, not {scale}")
    if granularity not in ("Tensor", "Channel"):
        raise ConfigError(f"{key}.quant_granularity: qk knows Tensor and Channel, not {granularity}")
    if what["format"] == "bf16":
        return "bf16"
    what["semantics"] = "quark"
    if what["format"] in _block_formats or what["format"] == "fp16":
        return what
    if fields.get("symmetric") is not None:
        what["symmetric"] = bool(fields["symmetric"])
    method = _word(fields.get("calibration_method", "MinMax"))
    power = scale.lower().startswith("power") or type(spec).__name__ == "XInt8Spec"
    if power:
        what.update(pow2="min_mse" if method == "MinMSE" else "non_overflow", symmetric=True)
    elif not weight:
        known = {**{k: v["method"] for k, v in _quark_methods.items() if "method" in v}, "MinMSE": "mse"}
        if method not in known:
            raise ConfigError(f"{key}.calibration_method: qk knows no {method}; it knows {', '.join(known)}")
        what["method"] = known[method]
    if weight and granularity == "Channel":
        what["per_channel"] = True
    return what


def _quark_new(config):
    """Returns the older keys for a QConfig: global_config of specs, and types for single layers, operator types and exclusions."""
    _only(config, {"global_config", "specific_layer_config", "layer_type_config", "exclude", "algo_config", "extra_options", "name", "version",
                   *_quark_ignored}, "", "Quark's")
    inner = _fields(config["global_config"])
    _only(inner, {"activation", "weight", "bias", "input_tensors", "output_tensors", "name"}, "global_config.", "Quark's")
    result = {"extra_options": dict(config.get("extra_options") or {}), "_requests": []}
    for new, old in (("activation", "activation_type"), ("weight", "weight_type")):
        if inner.get(new) is not None:
            result[old] = _quark_spec(inner[new], f"global_config.{new}", new == "weight")
    if inner.get("bias") is not None:
        result["_bias"] = _quark_spec(inner["bias"], "global_config.bias", True)["format"]
    for key in ("input_tensors", "output_tensors"):
        if inner.get(key) is not None:
            raise ConfigError(f"global_config.{key}: say model_inputs or model_outputs in a qk.Plan")
    for key, scope in (("specific_layer_config", "layer"), ("layer_type_config", "op_type")):
        for kind, names in dict(config.get(key) or {}).items():
            if kind is None:
                result["_requests"].append({scope: list(names), "exclude": True})
                continue
            what = {"format": _quark_data_type(kind, key), "semantics": "quark"}
            result["_requests"].append({scope: list(names), "activation": what, "weight": what})
    for name in config.get("exclude") or []:
        if not isinstance(name, str):
            raise ConfigError("exclude: qk takes names of nodes; a sub-graph is {\"subgraph\": [first, last], \"exclude\": true} in a qk.Plan")
        result["_requests"].append({"layer": name, "exclude": True})
    if config.get("algo_config"):
        raise ConfigError("algo_config: say it to qk itself (smooth_quant=, rotation=, weight_rounding= of qk.quantize)")
    return result


_inc_dtypes = {"int8": "int8", "uint8": "uint8", "int16": "int16", "uint16": "uint16", "int4": "int4", "fp16": "fp16", "bf16": "bf16", "fp32": None}
_inc_methods = {"minmax": "min_max", "min_max": "min_max", "kl": "entropy", "entropy": "entropy", "percentile": "percentile"}


def _inc_role(entry, key):
    """Returns the precision, or None for fp32, of {"dtype", "algorithm", "granularity", "scheme"}."""
    what = {}
    for name, value in dict(entry).items():
        values = value if isinstance(value, (list, tuple)) else [value]
        if name == "dtype":
            for v in values:
                if v not in _inc_dtypes:
                    raise ConfigError(f"{key}.dtype: qk knows no {v!r}")
            if list(values) == ["fp32"]:
                return None
            found = [_inc_dtypes[v] for v in values if _inc_dtypes[v] is not None]
            what["format"] = found[0] if len(found) == 1 else found
        elif name == "algorithm":
            for v in values:
                if v not in _inc_methods:
                    raise ConfigError(f"{key}.algorithm: qk knows no {v!r}")
            found = [_inc_methods[v] for v in values]
            if key.endswith("activation"):
                what["method"] = found[0] if len(found) == 1 else found
            elif set(found) != {"min_max"}:
                raise ConfigError(f"{key}.algorithm: weights have minmax, not {values}")
        elif name in ("granularity", "scheme"):
            found = [v for v in values if v in ("per_tensor", "per_channel", "sym", "asym")]
            if len(found) != len(values):
                raise ConfigError(f"{key}.{name}: qk knows per_tensor, per_channel, sym, asym, not {values}")
            if name == "granularity" and not key.endswith("weight") and "per_tensor" not in found:
                raise ConfigError(f"{key}.granularity: activations have per_tensor, not {values}")
            if name == "scheme" or key.endswith("weight"):
                what[name] = found[0] if len(found) == 1 else found
        elif name in ("bit", "group_size", "quant_mode") and value in (None, 8, -1, "static"):
            continue
        else:
            raise ConfigError(f"{key}.{name}: qk has nothing for this key of Neural Compressor's")
    if not what:
        return None
    what.setdefault("format", "uint8" if key.endswith("activation") else "int8")
    return what


def _inc_entry(scope, entry, key):
    request = dict(scope)
    roles = {}
    for role in ("activation", "weight"):
        if role in entry:
            roles[role] = _inc_role(entry[role], f"{key}.{role}")
    for name in entry:
        if name not in ("activation", "weight"):
            raise ConfigError(f"{key}.{name}: qk has nothing for this key of Neural Compressor's")
    if roles and all(v is None for v in roles.values()):
        request["exclude"] = True
        return request
    request.update({r: v for r, v in roles.items() if v is not None})
    return request


def _inc_pattern(name):
    """Returns a key of op_name_dict, a regular expression for a whole name, as a pattern of qk's."""
    pattern = name.removeprefix("^").removesuffix("$").replace(".*", "*").replace("\\.", ".")
    if "|" in pattern or "\\" in pattern:
        raise ConfigError(f"op_name_dict[{name!r}]: qk takes names, and .* for any run of characters: give an entry for each")
    return pattern


_inc_known = {"backend", "device", "domain", "recipes", "calibration_sampling_size", "quant_level", "framework", "quant_format", "example_inputs",
              "diagnosis", "ni_workload_name", "use_bf16", "op_name_dict", "op_type_dict", "approach", "excluded_precisions",
              "accuracy_criterion", "tuning_criterion", "reduce_range", "model_name"}
# Recipes of which only one answer is what qk does.
_inc_recipes = {"graph_optimization_level": None, "gemm_to_matmul": None, "first_conv_or_matmul_quantization": True, "last_conv_or_matmul_quantization": True,
                "pre_post_process_quantization": True}


def _inc_options(fields, searches):
    """Returns the options of a verb that a configuration says."""
    options = {}
    if fields.get("reduce_range"):
        options["reduce_range"] = True
    sizes = fields.get("calibration_sampling_size")
    sizes = list(sizes) if isinstance(sizes, (list, tuple)) else [sizes] if sizes else []
    if sizes and not searches:
        options["samples"] = int(sizes[0])
    recipes = dict(fields.get("recipes") or {})
    smooth, how = recipes.pop("smooth_quant", None), recipes.pop("smooth_quant_args", None) or {}
    if smooth:
        _only(how, {"alpha", "folding"}, "recipes['smooth_quant_args'].", "Neural Compressor's")
        options["smooth_quant"] = how.get("alpha", True)
    for key, value in recipes.items():
        wanted = _inc_recipes.get(key, False)
        if value is not None and wanted is not None and (value if wanted is False and _is_set(value) else wanted is True and value is not True):
            raise ConfigError(f"recipes[{key!r}]: qk has nothing for this key of Neural Compressor's with {value!r}")
    return options


def from_inc(config, eval_func=None):
    """Returns what a configuration of Intel Neural Compressor asks for: a PostTrainingQuantConfig, or a dictionary of the same keys."""
    fields = _fields(config)
    _only(fields, _inc_known, "", "Neural Compressor's")
    approach = {"static": "static", "dynamic": "dynamic", "weight_only": "weight_only", "auto": "static",
                "post_training_static_quant": "static", "post_training_dynamic_quant": "dynamic",
                "post_training_weight_only": "weight_only"}.get(str(fields.get("approach", "static")))
    if approach is None:
        raise ConfigError(f"approach: qk knows static, dynamic and weight_only, not {fields['approach']!r}")
    document = {"qk": "requests", "version": 1, "approach": approach,
                "default": {"activation": {"format": "uint8"}, "weight": {"format": "int8", "granularity": "per_channel", "scheme": "sym"}},
                "requests": []}
    for op_type, entry in dict(fields.get("op_type_dict") or {}).items():
        document["requests"].append(_inc_entry({"op_type": op_type}, entry, f"op_type_dict[{op_type!r}]"))
    for name, entry in dict(fields.get("op_name_dict") or {}).items():
        document["requests"].append(_inc_entry({"layer": _inc_pattern(name)}, entry, f"op_name_dict[{name!r}]"))
    options = _inc_options(fields, eval_func is not None)
    criterion, tuning = (_fields(fields.get(key) or {}) for key in ("accuracy_criterion", "tuning_criterion"))
    _only(criterion, {"tolerable_loss", "criterion", "higher_is_better", "relative", "absolute"}, "accuracy_criterion.", "Neural Compressor's")
    _only(tuning, {"timeout", "max_trials", "objective", "strategy", "strategy_kwargs"}, "tuning_criterion.", "Neural Compressor's")
    plan = Plan(document)
    if eval_func is None:
        return Imported("quantize", plan, options, "Neural Compressor")
    loss = criterion.get("tolerable_loss", 0.01)
    kind = str(criterion.get("criterion", "relative"))
    if kind not in ("relative", "absolute"):
        raise ConfigError(f"accuracy_criterion.criterion: qk knows relative and absolute, not {kind!r}")
    relative = kind == "relative"
    for key, usual in (("objective", ("performance",)), ("strategy", ("basic",)), ("strategy_kwargs", ())):
        value = tuning.get(key)
        if _is_set(value) and value not in usual and list(value if isinstance(value, (list, tuple)) else [value]) != list(usual):
            raise ConfigError(f"tuning_criterion.{key}: qk has nothing for {value!r}; choose strategy= of qk.search")
    options.update({"eval_func": eval_func, "higher_is_better": bool(criterion.get("higher_is_better", True)), "wide": "fp32/fp32",
                    "narrow": "uint8/int8", "target_relative" if relative else "target_drop": loss})
    if tuning.get("max_trials"):
        options["max_trials"] = int(tuning["max_trials"])
    if tuning.get("timeout"):
        options["time_limit"] = float(tuning["timeout"])
    document.pop("default")
    return Imported("search", Plan(document) if document["requests"] or approach != "static" else None, options, "Neural Compressor")


# ---- NNCF

_nncf_known = {"preset", "target_device", "subset_size", "fast_bias_correction", "model_type", "ignored_scope", "mode", "advanced_parameters"}


def from_nncf(ignored_scope=None, **config):
    """Returns what nncf.quantize does with these arguments: int8 weights by channel and int8 activations, which are asymmetric with
    preset="mixed" and for model_type="transformer". ignored_scope, an nncf.IgnoredScope or a dictionary of its names, patterns, types and
    subgraphs, stays in float32. The other arguments are nncf.quantize's."""
    _only(config, _nncf_known - {"mode", "advanced_parameters"}, "", "NNCF's")
    scope = _fields(ignored_scope or config.get("ignored_scope") or {})
    _only(scope, {"names", "patterns", "types", "subgraphs", "validate"}, "ignored_scope.", "NNCF's")
    device = _word(config.get("target_device") or "ANY").upper()
    if device not in ("ANY", "CPU", "CPU_SPR", "GPU", "NPU"):
        raise ConfigError(f"target_device: qk knows ANY, CPU, CPU_SPR, GPU and NPU, not {device}")
    transformer = _word(config.get("model_type") or "").lower() == "transformer"
    preset = _word(config.get("preset") or ("mixed" if transformer else "performance")).lower()
    if preset not in ("performance", "mixed"):
        raise ConfigError(f"preset: qk knows performance and mixed, not {preset}")
    requests = [{"layer": n, "exclude": True} for n in scope.get("names") or []]
    requests += [{"op_type": t, "exclude": True} for t in scope.get("types") or []]
    for subgraph in scope.get("subgraphs") or []:
        ends = _fields(subgraph)
        _only(ends, {"inputs", "outputs"}, "ignored_scope.subgraphs.", "NNCF's")
        requests += [{"subgraph": [a, b], "exclude": True} for a in ends.get("inputs") or [] for b in ends.get("outputs") or []]
    activation = {"format": "int8", "symmetric": True} if preset == "performance" else {"format": "uint8"}
    plan = Plan({"qk": "requests", "version": 1, "requests": requests,
                 "default": {"activation": activation, "weight": {"format": "int8", "granularity": "per_channel", "scheme": "sym"}}})
    options = {"samples": int(config["subset_size"])} if config.get("subset_size") else {}
    return Imported("quantize", plan, options, "NNCF", scope.get("patterns") or (), scope.get("validate", True))


# ---- AIMET's encodings


def _need(entry, key, name):
    if key not in entry:
        raise ConfigError(f"{name}: {key} is missing")
    return entry[key]


def _aimet_061(name, entries):
    """Returns the precision of a list of {"bitwidth", "dtype", "is_symmetric", "max", "min", "offset", "scale"}."""
    first = entries[0]
    for e in entries:
        _only(e, {"bitwidth", "dtype", "is_symmetric", "max", "min", "offset", "scale"}, f"{name}: ", "AIMET's encodings")
        for key in ("bitwidth", "dtype", "is_symmetric"):
            if e.get(key) != first.get(key):
                raise ConfigError(f"{name}: {key}: its channels have {first.get(key)!r} and {e.get(key)!r}; qk takes one for all")
    bits = int(_need(first, "bitwidth", name))
    if str(first.get("dtype", "int")).lower().startswith("float"):
        if bits not in (16, 32):
            raise ConfigError(f"{name}: bitwidth: qk takes floats of 16 and 32 bits from encodings, not {bits}")
        return f"fp{bits}"
    symmetric = str(first.get("is_symmetric", "False")).lower() == "true"
    scales, zeros = [], []
    for e in entries:
        scales.append(float(_need(e, "scale", name)))
        zeros.append(-int(_need(e, "offset", name)))  # AIMET: x = (q + offset) * scale with q from 0 on
    if symmetric:  # signed codes: q - 2^(bits - 1)
        zeros = [z - (1 << (bits - 1)) for z in zeros]
    what = {"format": f"{'int' if symmetric else 'uint'}{bits}", "scale": scales}
    if any(zeros):
        what["zero_point"] = zeros
    return what


def _aimet_200(entry):
    """Returns the quantizer of {"name", "output_dtype", "y_scale", "y_zero_point", "axis", "block_size"}, ONNX's words."""
    name = str(_need(entry, "name", "an encoding"))
    dtype = str(_need(entry, "output_dtype", name))
    if entry.get("block_size") or "per_block_int_scale" in entry:
        raise ConfigError(f"{name}: block_size: encodings with a scale for each block are not taken; ask for block_size in a plan")
    _only(entry, {"name", "output_dtype", "y_scale", "y_zero_point", "axis", "block_size"}, f"{name}: ", "AIMET's encodings")
    names = {v: k for k, v in _float_names.items()}
    if dtype in names and entry.get("y_scale") is None:
        return {"format": names[dtype], "axis": -1}
    if not dtype.startswith(("int", "uint")):
        raise ConfigError(f"{name}: output_dtype {dtype}: qk takes integers with scales, and of floats {', '.join(names)} without")
    flat = lambda v: [x for part in v for x in flat(part)] if isinstance(v, list) else [v]  # noqa: E731
    what = {"format": dtype, "axis": int(entry["axis"]) if entry.get("axis") is not None else -1, "scale": [float(v) for v in flat(_need(entry, "y_scale", name))]}
    if len(what["scale"]) > 1 and entry.get("axis") is None:
        raise ConfigError(f"{name}: axis: there are {len(what['scale'])} scales, and no axis that they run along")
    zeros = flat(entry.get("y_zero_point") or 0)
    if any(zeros):
        what["zero_point"] = [int(v) for v in (zeros if len(zeros) > 1 else zeros * len(what["scale"]))]
    return what


def from_aimet(encodings):
    """Returns a qk.Plan from AIMET's encodings: a file or a dictionary of version 0.6.1, 1.0.0 or 2.0.0."""
    if isinstance(encodings, (str, os.PathLike)):
        encodings = _files.read_json(encodings)
    if not isinstance(encodings, dict):
        raise ConfigError(f"version: encodings are a dictionary with one, not a {type(encodings).__name__}")
    version = str(encodings.get("version", ""))
    requests, known = [], {"version", "activation_encodings", "param_encodings", "quantizer_args", "excluded_layers", "producer"}
    if version.startswith("0.6"):
        _only(encodings, known, "", "AIMET's encodings")
        if "activation_encodings" not in encodings and "param_encodings" not in encodings:
            raise ConfigError("activation_encodings: the file has neither these nor param_encodings")
        for kind in ("activation_encodings", "param_encodings"):
            for name, entries in dict(encodings.get(kind) or {}).items():
                if entries:
                    requests.append({"tensor": name, "format": _aimet_061(name, entries)})
    elif version.startswith("1."):
        return Plan(encodings)  # qk reads this version itself
    elif version.startswith("2."):
        _only(encodings, {"version", "encodings", "quantizer_args", "excluded_layers", "producer"}, "", "AIMET's encodings")
        if any(isinstance(entry, dict) and entry.get("block_size") for entry in encodings.get("encodings") or []):
            return Plan(encodings)  # where blocks stand, the model says
        tensors = {}
        for entry in _need(encodings, "encodings", "version 2.0.0"):
            if entry.get("name") in tensors:
                raise ConfigError(f"{entry['name']}: name: the tensor stands twice")
            tensors[str(entry.get("name"))] = _aimet_200(entry)
        return Plan({"qk": "plan", "version": 1, "tensors": tensors, "edges": []})  # each with its axis
    else:
        raise ConfigError(f"version: qk reads encodings 0.6.1, 1.0.0 and 2.0.0, not {version or 'a file without one'}")
    return Plan({"qk": "requests", "version": 1, "requests": requests, "boundary": "dual"})


def to_aimet(plan, version="2.0.0"):
    """Returns the encodings of a saved plan (a result's .plan) as AIMET's version 0.6.1, 1.0.0 or 2.0.0 has them.

    Scales of blocks are what qk.quantize(..., encodings=FILE, encodings_version=...) writes: their order depends on the model.
    """
    if not plan.is_saved:
        raise ValueError("encodings have scales: give the plan of a result")
    found, parameters = {}, set(plan._parameters)
    for e in plan.document.get("edges", []):
        if found.setdefault(e["tensor"], e["quantizer"]) != e["quantizer"]:
            raise ConfigError(f"{e['tensor']}: has two formats, {found[e['tensor']]['format']} and {e['quantizer']['format']}; encodings hold one for each tensor")
        if not plan._parameters and e["consumer"] and e["index"] in (1, 2):
            parameters.add(e["tensor"])
    for name, q in plan.document.get("tensors", {}).items():
        found.setdefault(name, q)
    found = {n: _with_lists(q, plan._arrays) for n, q in sorted(found.items())}
    parameters |= {n for n, q in found.items() if len(q.get("scale") or []) > 1}  # a plan that was read does not tell its parameters
    activations, of_parameters = ({n: q for n, q in found.items() if (n in parameters) is wanted} for wanted in (False, True))
    if version.startswith("2."):
        return {"version": "2.0.0", "encodings": [_to_200(n, q) for n, q in found.items()]}
    if version.startswith("1."):
        return {"version": "1.0.0", "activation_encodings": [_to_100(n, q) for n, q in activations.items()],
                "param_encodings": [_to_100(n, q) for n, q in of_parameters.items()], "excluded_layers": []}
    if version.startswith("0.6"):
        return {"version": "0.6.1", "activation_encodings": {n: _to_061(n, q) for n, q in activations.items()},
                "param_encodings": {n: _to_061(n, q) for n, q in of_parameters.items()}}
    raise ValueError(f"version {version}: 0.6.1, 1.0.0 or 2.0.0")


def _with_lists(q, arrays):
    """Returns a quantizer whose long lists, which lie beside a plan, are lists."""
    return {k: arrays[v["array"]].tolist() if isinstance(v, dict) and "array" in v else v for k, v in q.items()}


def _to_100(name, q):
    if q["format"] in ("fp16", "fp32") and not q.get("scale"):
        return {"name": name, "enc_type": "PER_TENSOR", "dtype": "FLOAT", "bw": int(q["format"][2:])}
    format, bits = _integer_of(name, q)
    signed, scales = format.startswith("int"), q["scale"]
    zeros = q.get("zero_point") or [0] * len(scales)
    return {"name": name, "enc_type": "PER_CHANNEL" if len(scales) > 1 else "PER_TENSOR", "dtype": "INT",
            "bw": bits, "is_sym": signed and not any(zeros), "scale": scales, "offset": [-z - ((1 << (bits - 1)) if signed else 0) for z in zeros]}


def _integer_of(name, q):
    format = q["format"].partition(":")[0]
    if not format.startswith(("int", "uint")) or not q.get("scale") or q.get("block_size"):
        raise ConfigError(f"{name}: {q['format']} has no encoding with a scale for each tensor or channel; qk.quantize(..., encodings=FILE, encodings_version=...) writes those of blocks, whose order the model says")
    return format, int(format.lstrip("uint"))


_float_names = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp8_e4m3fn": "float8e4m3fn", "fp8_e5m2": "float8e5m2"}


def _to_200(name, q):
    if q["format"] in _float_names and not q.get("scale"):
        return {"name": name, "output_dtype": _float_names[q["format"]]}
    format, _ = _integer_of(name, q)
    many = len(q["scale"]) > 1
    entry = {"name": name, "output_dtype": format, "y_scale": q["scale"] if many else q["scale"][0]}
    if many:
        entry["axis"] = q.get("axis", 0)
    zeros = q.get("zero_point") or []
    if any(zeros):
        entry["y_zero_point"] = zeros if many else zeros[0]
    return entry


def _to_061(name, q):
    if q["format"] in ("fp16", "fp32") and not q.get("scale"):
        return [{"bitwidth": int(q["format"][2:]), "dtype": "float"}]
    format, bits = _integer_of(name, q)
    signed = format.startswith("int")
    zeros = q.get("zero_point") or [0] * len(q["scale"])
    symmetric, entries = signed and not any(zeros), []  # one word for all channels, as AIMET reads it
    for scale, zero in zip(q["scale"], zeros):
        offset = -(zero + (1 << (bits - 1) if signed else 0))
        entries.append({"bitwidth": bits, "dtype": "int", "is_symmetric": str(symmetric), "scale": scale, "offset": offset,
                        "min": scale * offset, "max": scale * (offset + (1 << bits) - 1)})
    return entries


def write_aimet(plan, file, version="2.0.0"):
    """Writes to_aimet(plan, version) to a file."""
    _files.write({file: json.dumps(to_aimet(plan, version), indent=1)})
