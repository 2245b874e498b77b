# SPDX-License-Identifier: Apache-2.0
# The verbs, last, are written by python/make_stubs.py; tests/python/test_stubs.py checks that they are current.
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Path: TypeAlias = str | os.PathLike[str]
Data: TypeAlias = Any
Progress: TypeAlias = bool | Callable[[str, int, int], object] | None
FormatName: TypeAlias = str | Format

__version__: str

class Error(Exception): ...
class ConfigError(ValueError): ...
class Remark(UserWarning): ...

class Interrupted(KeyboardInterrupt):
    result: SearchResult | None

class Semantics:
    name: str
    def __init__(self, name: str = ..., *, rounding: str | None = ..., scale_rule: str | None = ..., integer_mode: str | None = ...,
                 overflow: str | None = ..., seed: int = ..., random_bits: int | None = ..., zero_point_before: bool = ...,
                 mxint_lowest: bool = ..., flush_inputs: bool = ..., flush_outputs: bool = ...) -> None: ...
    def choices(self) -> dict[str, Any]: ...

class Format:
    name: str
    family: str
    bits_per_value: float
    largest: float
    lowest: float
    smallest_normal: float
    smallest_subnormal: float
    infinity: bool
    nan: bool
    negative_zero: bool
    block_size: int
    source: str
    def __init__(self, name: str) -> None: ...
    def to_dict(self) -> dict[str, Any]: ...
    def values(self, most: int = ...) -> NDArray[np.float32]: ...

def format(name: FormatName) -> Format: ...
def formats() -> list[Format]: ...
def semantics() -> list[str]: ...
def roundings() -> list[str]: ...
def architecture() -> str: ...

class Packed:
    format: str
    shape: tuple[int, ...]
    axis: int
    data: NDArray[np.uint8]
    @property
    def elements(self) -> NDArray[np.uint8]: ...
    @property
    def scales(self) -> NDArray[np.uint8]: ...
    @property
    def shifts(self) -> NDArray[np.uint8]: ...
    @property
    def tensor_scale(self) -> NDArray[np.float32]: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def size(self) -> int: ...
    def codes(self) -> NDArray[Any]: ...
    def decode(self, dtype: Any = ..., out: Any = ...) -> Any: ...
    def save(self, file: Path) -> None: ...
    @classmethod
    def load(cls, file: Path) -> Packed: ...

def fake_quantize(x: Any, format: FormatName, axis: int = ..., semantics: str | Semantics = ..., rounding: str | None = ..., scale: Any = ...,
                  zero_point: Any = ..., scale_axis: int | None = ..., scale_block: int | None = ..., out: Any = ..., threads: int = ...,
                  *, random_words: Any = ...) -> Any: ...
def encode(x: Any, format: FormatName, axis: int = ..., semantics: str | Semantics = ..., rounding: str | None = ..., scale: Any = ...,
           zero_point: Any = ..., scale_axis: int | None = ..., scale_block: int | None = ..., *, random_words: Any = ...) -> Packed: ...
def decode(packed: Packed, dtype: Any = ..., out: Any = ...) -> Any: ...
def fake_quantize_backward(x: Any, grad: Any, format: FormatName, semantics: str | Semantics = ..., rounding: str | None = ..., scale: Any = ...,
                           zero_point: Any = ..., scale_axis: int | None = ..., scale_block: int | None = ...) -> Any: ...
class Comparison(dict[str, Any]):
    text: str

def compare(x: Any, device: Any, format: FormatName, **options: Any) -> Comparison: ...
def find_accumulator(device: Callable[..., Any], a_format: FormatName, b_format: FormatName, c_format: FormatName = ...,
                     accumulator: str | None = ..., progress: Any = ..., **options: Any) -> Comparison: ...
def vectors(format: FormatName | None = ..., out: Path | None = ..., **options: Any) -> dict[str, Any]: ...
def dot(a: Any, b: Any, c: Any = ..., device: str | None = ..., accumulator: str | None = ..., a_format: FormatName | None = ...,
        b_format: FormatName | None = ...) -> NDArray[np.float32]: ...
def devices(part: str | None = ...) -> list[dict[str, Any]]: ...

class Layer:
    name: str | int
    activation: Any
    weight: Any
    bias: Any
    input: Any
    output: Any
    exclude: Any
    accumulator: Any

class Plan:
    document: dict[str, Any]
    def __init__(self, source: Plan | Mapping[str, Any] | Path | None = ..., *, activation: Any = ..., weight: Any = ..., bias: Any = ...) -> None: ...
    @property
    def is_saved(self) -> bool: ...
    def set_default(self, activation: Any = ..., weight: Any = ..., bias: Any = ...) -> Plan: ...
    def __getitem__(self, layer: str | int) -> Layer: ...
    def __delitem__(self, layer: str) -> None: ...
    def layers(self) -> list[str]: ...
    def set_precision(self, layer: str | int | Sequence[str | int], activation: Any = ..., weight: Any = ..., *, param: Mapping[str, Any] | None = ...,
                      output: Any = ...) -> Plan: ...
    def set_op_type_precision(self, op_type: str, activation: Any = ..., weight: Any = ...) -> Plan: ...
    def set_model_input_precision(self, activation: Any) -> Plan: ...
    def set_model_output_precision(self, activation: Any) -> Plan: ...
    def apply(self, model: Any, data: Data = ..., log_file: Any = ..., strict: bool | str = ..., **options: Any) -> Result: ...
    def to_dict(self) -> dict[str, Any]: ...
    def save(self, file: Path) -> None: ...

class Model:
    path: str | None
    def __init__(self, source: Any) -> None: ...
    @property
    def bytes(self) -> bytes: ...
    @property
    def inputs(self) -> list[str]: ...
    @property
    def outputs(self) -> list[str]: ...
    @property
    def layers(self) -> list[str]: ...
    @property
    def proto(self) -> Any: ...
    def save(self, path: Path) -> None: ...
    def inspect(self, **options: Any) -> dict[str, Any]: ...
    def __call__(self, data: Data, **options: Any) -> dict[str, NDArray[Any]]: ...

class Result:
    verb: str
    status: int
    remarks: list[str]
    plan: Plan
    model: Model
    outputs: dict[str, NDArray[Any]]
    gradients: dict[str, NDArray[Any]]
    @property
    def metric(self) -> Any: ...
    @property
    def layers(self) -> Any: ...
    @property
    def front(self) -> list[dict[str, Any]]: ...
    def to_dict(self) -> dict[str, Any]: ...
    def __getitem__(self, key: str) -> Any: ...
    def __contains__(self, key: str) -> bool: ...
    def keys(self) -> Iterable[str]: ...
    def save(self, path: Path, export: str | None = ...) -> None: ...
    def report(self, path: Path) -> None: ...
    def to_pandas(self) -> Any: ...
    def plot(self, axes: Any = ...) -> Any: ...

class SearchResult(Result):
    @property
    def cost(self) -> float: ...
    @property
    def target_met(self) -> bool: ...
    @property
    def choice(self) -> dict[str, str]: ...

class SensitivityResult(Result):
    @property
    def rows(self) -> list[dict[str, Any]]: ...

class Calibration(Result):
    statistics: bytes
    @property
    def tensors(self) -> dict[str, Any]: ...

class Imported:
    verb: str
    plan: Plan | None
    options: dict[str, Any]
    patterns: tuple[str, ...]
    def plan_for(self, model: Any) -> Plan | None: ...
    def run(self, model: Any, data: Data = ..., **more: Any) -> Any: ...

def load(source: Any) -> Model: ...
def inspect(model: Any, **options: Any) -> dict[str, Any]: ...
def recover(model: Any) -> Result: ...
def explain(model: Any, tensor: str, data: Data = ..., **options: Any) -> Result: ...
def from_quark(config: Any) -> Imported: ...
def from_inc(config: Any, eval_func: Callable[..., float] | None = ...) -> Imported: ...
def from_nncf(ignored_scope: Any = ..., **config: Any) -> Imported: ...
def from_aimet(encodings: Path | Mapping[str, Any]) -> Plan: ...
def to_aimet(plan: Plan, version: str = ...) -> dict[str, Any]: ...
def write_aimet(plan: Plan, file: Path, version: str = ...) -> None: ...

# Verbs, written by python/make_stubs.py.
def quantize(
    model: Any,
    data: Any = ...,
    *,
    output: str | Path | None = ...,
    recipe: str | Path | None = ...,
    activation: FormatName | None = ...,
    weight: FormatName | None = ...,
    weight_rounding: str | Path | None = ...,
    iterations: int | None = ...,
    seed: int | None = ...,
    bias_correction: bool = ...,
    bias: FormatName | None = ...,
    kv_cache: FormatName | None = ...,
    smooth_quant: str | Path | None = ...,
    awq: str | Path | None = ...,
    rotation: str | Path | None = ...,
    plan: Plan | Mapping[str, Any] | Path | None = ...,
    target: Mapping[str, Any] | Path | None = ...,
    per_channel: bool = ...,
    per_tensor: bool = ...,
    weight_method: str | Path | None = ...,
    weight_block: int | None = ...,
    symmetric: bool = ...,
    asymmetric_weights: bool = ...,
    reduce_range: bool = ...,
    pow2: str | Path | None = ...,
    calibration_method: str | Path | None = ...,
    percentile: float | None = ...,
    semantics: str | Path | None = ...,
    scale_rule: str | Path | None = ...,
    scale_objective: str | Path | None = ...,
    rounding: str | Path | None = ...,
    placement: str | Path | None = ...,
    approach: str | Path | None = ...,
    dual: bool = ...,
    strict: bool | str | None = ...,
    labels: Any = ...,
    ignore_label: int | None = ...,
    preprocess: str | Path | None = ...,
    calibration: Data = ...,
    samples: int | None = ...,
    batch_axis: str | Path | None = ...,
    skip_bad_samples: bool = ...,
    threads: int | None = ...,
    run_with: str | Path | None = ...,
    export: str | Path | None = ...,
    weights: str | Path | None = ...,
    inline: bool = ...,
    keep_int8: bool = ...,
    accuracy_level: int | None = ...,
    verify: str | Path | None = ...,
    time: bool = ...,
    save_plan: str | Path | None = ...,
    encodings: str | Path | None = ...,
    encodings_version: str | Path | None = ...,
    report: str | Path | None = ...,
    log: str | Path | None = ...,
    overwrite: bool = ...,
    progress: Progress = ...,
) -> Result: ...
def calibrate(
    model: Any,
    data: Any,
    *,
    labels: Any = ...,
    ignore_label: int | None = ...,
    preprocess: str | Path | None = ...,
    calibration: Data = ...,
    samples: int | None = ...,
    batch_axis: str | Path | None = ...,
    skip_bad_samples: bool = ...,
    threads: int | None = ...,
    method: str | Path | None = ...,
    percentile: float | None = ...,
    format: str | Path | None = ...,
    symmetric: bool = ...,
    output: str | Path | None = ...,
    report: str | Path | None = ...,
    overwrite: bool = ...,
    progress: Progress = ...,
) -> Calibration: ...
def evaluate(
    model: Any,
    data: Any,
    *,
    labels: Any = ...,
    ignore_label: int | None = ...,
    preprocess: str | Path | None = ...,
    calibration: Data = ...,
    samples: int | None = ...,
    batch_axis: str | Path | None = ...,
    skip_bad_samples: bool = ...,
    threads: int | None = ...,
    mask: str | Path | None = ...,
    next_token: bool = ...,
    per_position: bool = ...,
    activation: FormatName | None = ...,
    weight: FormatName | None = ...,
    weight_rounding: str | Path | None = ...,
    iterations: int | None = ...,
    seed: int | None = ...,
    bias_correction: bool = ...,
    bias: FormatName | None = ...,
    kv_cache: FormatName | None = ...,
    smooth_quant: str | Path | None = ...,
    awq: str | Path | None = ...,
    rotation: str | Path | None = ...,
    plan: Plan | Mapping[str, Any] | Path | None = ...,
    target: Mapping[str, Any] | Path | None = ...,
    per_channel: bool = ...,
    per_tensor: bool = ...,
    weight_method: str | Path | None = ...,
    weight_block: int | None = ...,
    symmetric: bool = ...,
    asymmetric_weights: bool = ...,
    reduce_range: bool = ...,
    pow2: str | Path | None = ...,
    calibration_method: str | Path | None = ...,
    percentile: float | None = ...,
    semantics: str | Path | None = ...,
    scale_rule: str | Path | None = ...,
    scale_objective: str | Path | None = ...,
    rounding: str | Path | None = ...,
    placement: str | Path | None = ...,
    approach: str | Path | None = ...,
    dual: bool = ...,
    strict: bool | str | None = ...,
    accumulator: str | Path | Sequence[str | Path] | None = ...,
    packed_weights: bool = ...,
    run_with: str | Path | None = ...,
    metric: str | Sequence[str] | Callable[..., float] | None = ...,
    generate: int | None = ...,
    output_index: int | None = ...,
    batch: int | None = ...,
    output_dir: str | Path | None = ...,
    dump: str | Path | None = ...,
    compare: Mapping[str, Any] | Path | None = ...,
    tolerance: float | None = ...,
    overwrite: bool = ...,
    progress: Progress = ...,
    outputs: bool = ...,
) -> Result: ...
def diff(
    model: Any,
    against: Any = ...,
    data: Any = ...,
    *,
    command: str | Path | None = ...,
    optimizer: str | Path | None = ...,
    library: bool | str | Path | None = ...,
    labels: Any = ...,
    ignore_label: int | None = ...,
    preprocess: str | Path | None = ...,
    calibration: Data = ...,
    samples: int | None = ...,
    batch_axis: str | Path | None = ...,
    skip_bad_samples: bool = ...,
    threads: int | None = ...,
    activation: FormatName | None = ...,
    weight: FormatName | None = ...,
    weight_rounding: str | Path | None = ...,
    iterations: int | None = ...,
    seed: int | None = ...,
    bias_correction: bool = ...,
    bias: FormatName | None = ...,
    kv_cache: FormatName | None = ...,
    smooth_quant: str | Path | None = ...,
    awq: str | Path | None = ...,
    rotation: str | Path | None = ...,
    plan: Plan | Mapping[str, Any] | Path | None = ...,
    target: Mapping[str, Any] | Path | None = ...,
    per_channel: bool = ...,
    per_tensor: bool = ...,
    weight_method: str | Path | None = ...,
    weight_block: int | None = ...,
    symmetric: bool = ...,
    asymmetric_weights: bool = ...,
    reduce_range: bool = ...,
    pow2: str | Path | None = ...,
    calibration_method: str | Path | None = ...,
    percentile: float | None = ...,
    semantics: str | Path | None = ...,
    scale_rule: str | Path | None = ...,
    scale_objective: str | Path | None = ...,
    rounding: str | Path | None = ...,
    placement: str | Path | None = ...,
    approach: str | Path | None = ...,
    dual: bool = ...,
    strict: bool | str | None = ...,
    report: str | Path | None = ...,
    overwrite: bool = ...,
    progress: Progress = ...,
) -> Result: ...
def sensitivity(
    model: Any,
    data: Any,
    *,
    labels: Any = ...,
    ignore_label: int | None = ...,
    preprocess: str | Path | None = ...,
    calibration: Data = ...,
    samples: int | None = ...,
    batch_axis: str | Path | None = ...,
    skip_bad_samples: bool = ...,
    threads: int | None = ...,
    mask: str | Path | None = ...,
    next_token: bool = ...,
    per_position: bool = ...,
    wide: str | Path | None = ...,
    narrow: str | Path | Sequence[str | Path] | None = ...,
    narrow_for: str | Path | Sequence[str | Path] | None = ...,
    metric: str | Sequence[str] | Callable[..., float] | None = ...,
    metric_command: str | Path | None = ...,
    metric_server: str | Path | None = ...,
    metric_timeout: float | None = ...,
    higher_is_better: bool = ...,
    baseline: str | Path | None = ...,
    output_index: int | None = ...,
    op_types: str | Path | Sequence[str | Path] | None = ...,
    layers: str | Path | Sequence[str | Path] | None = ...,
    exclude: str | Path | Sequence[str | Path] | None = ...,
    cost: str | Path | None = ...,
    latency_table: Mapping[str, Any] | Path | None = ...,
    kv_cache: FormatName | None = ...,
    smooth_quant: str | Path | None = ...,
    awq: str | Path | None = ...,
    rotation: str | Path | None = ...,
    plan: Plan | Mapping[str, Any] | Path | None = ...,
    target: Mapping[str, Any] | Path | None = ...,
    per_channel: bool = ...,
    per_tensor: bool = ...,
    weight_method: str | Path | None = ...,
    weight_block: int | None = ...,
    symmetric: bool = ...,
    asymmetric_weights: bool = ...,
    reduce_range: bool = ...,
    pow2: str | Path | None = ...,
    calibration_method: str | Path | None = ...,
    percentile: float | None = ...,
    semantics: str | Path | None = ...,
    scale_rule: str | Path | None = ...,
    scale_objective: str | Path | None = ...,
    rounding: str | Path | None = ...,
    placement: str | Path | None = ...,
    approach: str | Path | None = ...,
    dual: bool = ...,
    strict: bool | str | None = ...,
    report: str | Path | None = ...,
    overwrite: bool = ...,
    direction: str | Path | None = ...,
    method: str | Path | None = ...,
    passes: int | None = ...,
    seed: int | None = ...,
    weights_only: bool = ...,
    formats: str | Path | Sequence[str | Path] | None = ...,
    importance: str | Path | None = ...,
    progress: Progress = ...,
    eval_func: Callable[..., float] | None = ...,
    eval_func_path: bool = ...,
    executor: Executor | Any = ...,
) -> SensitivityResult: ...
def search(
    model: Any,
    data: Any,
    *,
    recipe: str | Path | None = ...,
    labels: Any = ...,
    ignore_label: int | None = ...,
    preprocess: str | Path | None = ...,
    calibration: Data = ...,
    samples: int | None = ...,
    batch_axis: str | Path | None = ...,
    skip_bad_samples: bool = ...,
    threads: int | None = ...,
    mask: str | Path | None = ...,
    next_token: bool = ...,
    per_position: bool = ...,
    wide: str | Path | None = ...,
    narrow: str | Path | Sequence[str | Path] | None = ...,
    narrow_for: str | Path | Sequence[str | Path] | None = ...,
    metric: str | Sequence[str] | Callable[..., float] | None = ...,
    metric_command: str | Path | None = ...,
    metric_server: str | Path | None = ...,
    metric_timeout: float | None = ...,
    higher_is_better: bool = ...,
    baseline: str | Path | None = ...,
    output_index: int | None = ...,
    op_types: str | Path | Sequence[str | Path] | None = ...,
    layers: str | Path | Sequence[str | Path] | None = ...,
    exclude: str | Path | Sequence[str | Path] | None = ...,
    cost: str | Path | None = ...,
    latency_table: Mapping[str, Any] | Path | None = ...,
    kv_cache: FormatName | None = ...,
    smooth_quant: str | Path | None = ...,
    awq: str | Path | None = ...,
    rotation: str | Path | None = ...,
    plan: Plan | Mapping[str, Any] | Path | None = ...,
    target: Mapping[str, Any] | Path | None = ...,
    per_channel: bool = ...,
    per_tensor: bool = ...,
    weight_method: str | Path | None = ...,
    weight_block: int | None = ...,
    symmetric: bool = ...,
    asymmetric_weights: bool = ...,
    reduce_range: bool = ...,
    pow2: str | Path | None = ...,
    calibration_method: str | Path | None = ...,
    percentile: float | None = ...,
    semantics: str | Path | None = ...,
    scale_rule: str | Path | None = ...,
    scale_objective: str | Path | None = ...,
    rounding: str | Path | None = ...,
    placement: str | Path | None = ...,
    approach: str | Path | None = ...,
    dual: bool = ...,
    strict: bool | str | None = ...,
    report: str | Path | None = ...,
    overwrite: bool = ...,
    strategy: str | Path | None = ...,
    ranking: str | Path | None = ...,
    direction: str | Path | None = ...,
    target_l2: float | None = ...,
    target_mse: float | None = ...,
    target_sqnr: float | None = ...,
    target_psnr: float | None = ...,
    target_cosine: float | None = ...,
    target_kl: float | None = ...,
    target_loss: float | None = ...,
    target_perplexity: float | None = ...,
    target_top1: float | None = ...,
    target_top1_drop: float | None = ...,
    target_top5: float | None = ...,
    target_top5_drop: float | None = ...,
    target_agreement: float | None = ...,
    target_agreement_drop: float | None = ...,
    target_metric: float | None = ...,
    target_drop: float | None = ...,
    target_relative: float | None = ...,
    budget: float | str | None = ...,
    budget_ratio: float | None = ...,
    wide_share: float | None = ...,
    max_trials: int | None = ...,
    time_limit: float | None = ...,
    seed: int | None = ...,
    cache: str | Path | None = ...,
    formats: str | Path | Sequence[str | Path] | None = ...,
    share: str | Path | Sequence[str | Path] | None = ...,
    importance: str | Path | None = ...,
    names_as_they_are: bool = ...,
    output: str | Path | None = ...,
    export: str | Path | None = ...,
    weights: str | Path | None = ...,
    save_plan: str | Path | None = ...,
    progress: Progress = ...,
    eval_func: Callable[..., float] | None = ...,
    eval_func_path: bool = ...,
    executor: Executor | Any = ...,
) -> SearchResult: ...
def gradient(
    model: Any,
    data: Any,
    *,
    labels: Any = ...,
    ignore_label: int | None = ...,
    preprocess: str | Path | None = ...,
    samples: int | None = ...,
    batch_axis: str | Path | None = ...,
    skip_bad_samples: bool = ...,
    threads: int | None = ...,
    vector: Any = ...,
    output_index: int | None = ...,
    output: str | Path | None = ...,
    overwrite: bool = ...,
    progress: Progress = ...,
) -> Result: ...
def finetune(
    model: Any,
    data: Any,
    *,
    labels: Any = ...,
    ignore_label: int | None = ...,
    preprocess: str | Path | None = ...,
    calibration: Data = ...,
    samples: int | None = ...,
    batch_axis: str | Path | None = ...,
    skip_bad_samples: bool = ...,
    threads: int | None = ...,
    activation: FormatName | None = ...,
    weight: FormatName | None = ...,
    weight_rounding: str | Path | None = ...,
    iterations: int | None = ...,
    bias_correction: bool = ...,
    bias: FormatName | None = ...,
    kv_cache: FormatName | None = ...,
    smooth_quant: str | Path | None = ...,
    awq: str | Path | None = ...,
    rotation: str | Path | None = ...,
    plan: Plan | Mapping[str, Any] | Path | None = ...,
    target: Mapping[str, Any] | Path | None = ...,
    per_channel: bool = ...,
    per_tensor: bool = ...,
    weight_method: str | Path | None = ...,
    weight_block: int | None = ...,
    symmetric: bool = ...,
    asymmetric_weights: bool = ...,
    reduce_range: bool = ...,
    pow2: str | Path | None = ...,
    calibration_method: str | Path | None = ...,
    percentile: float | None = ...,
    semantics: str | Path | None = ...,
    scale_rule: str | Path | None = ...,
    scale_objective: str | Path | None = ...,
    rounding: str | Path | None = ...,
    placement: str | Path | None = ...,
    approach: str | Path | None = ...,
    dual: bool = ...,
    strict: bool | str | None = ...,
    epochs: int | None = ...,
    batch: int | None = ...,
    rate: float | None = ...,
    held_out: float | None = ...,
    seed: int | None = ...,
    output_index: int | None = ...,
    output: str | Path | None = ...,
    save_plan: str | Path | None = ...,
    overwrite: bool = ...,
    progress: Progress = ...,
) -> Result: ...
