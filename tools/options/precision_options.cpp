// SPDX-License-Identifier: Apache-2.0
#include "options/precision_options.hpp"

#include "options/words.hpp"
#include "qk/graph/pipeline.hpp"
#include "qk/option_names.hpp"

namespace qk::tool {

namespace {

/// Adds the options for how weights are rounded to codes.
void add_rounding(option_table& verb, precision_settings& precision, bool seed) {
    verb.add_option(
            "--weight-rounding", precision.weight_rounding,
            "nearest (default); compensated: weights not yet rounded take up the error of those that are (GPTQ); adaround: each learns "
            "to which neighbour it goes; adaquant: weights, biases and scales of a layer learn; all by the calibration samples")
        .type_name("R")
        .suggest({"nearest", "compensated", "adaround", "adaquant"});
    verb.add_option("--iterations", precision.iterations, "steps of adaround and adaquant for each layer (1000)")
        .type_name("N")
        .at_least(1);
    if (seed) verb.add_option("--seed", precision.seed, "of what adaround and adaquant learn from").type_name("N");
    verb.add_flag("--bias-correction", precision.bias_correction,
                  "move the mean error of each channel of a layer's output into its bias, by the calibration samples");
}

/// Adds the options that transform the model before it is planned.
void add_transformations(option_table& verb, precision_settings& precision) {
    verb.add_option("--smooth-quant", precision.smooth_quant,
                    "divide the channels of what layers read, and multiply their weights, so that outliers do not set the scale: alpha "
                    "from 0 to 1, or search; by the calibration samples")
        .type_name("ALPHA")
        .suggest({"search", "0.5"});
    verb.add_option("--awq", precision.awq,
                    "likewise by the mean magnitude of activations, for narrow weights (AWQ): search, or alpha from 0 to 1")
        .type_name("ALPHA")
        .suggest({"search", "0.5"});
    verb.add_option("--rotation", precision.rotation,
                    "hadamard: the channels of residual streams in another basis, in which no outlier stands alone; the gains of RMS "
                    "normalizations go into the weights (QuaRot). none (default)")
        .type_name("R")
        .suggest({"none", "hadamard"});
}

void add_target(option_table& verb, precision_settings& precision) {
    verb.add_option(
            "--target", precision.target,
            "profile of a runtime, or onnxruntime, openvino, qnn (qnn_v66 to qnn_v85), tensorrt, vitis_ai: what it cannot run stays "
            "float32 with a remark, scales follow its rules, and the file is written as it reads files; its formats if no others are asked "
            "for (docs/reference/targets.md)")
        .type_name("PROFILE.json")
        .suggest(graph::builtin_target_names());
}

/// Adds the options for how blocks choose their scales, and what a search of scales minimises.
void add_searched_scales(option_table& verb, precision_settings& precision) {
    verb.add_option(
            "--scale-rule", precision.scale_rule,
            "how MX formats choose scales: floor (the standard's example), ceil, rceil, even or ceil_7_25, and NVFP4, too: search (least "
            "error; also for weights with a scale of their own, as int4) or four_over_six (the better of two); if neither this nor "
            "--semantics is given, the best of them on trained networks (docs/results/scale_rules.md)")
        .type_name("RULE")
        .suggest(words_of(scale_rule_names));
    verb.add_option("--scale-objective", precision.scale_objective,
                    "what searched scales minimise: mse (default), mae, or for weights weighted: mse, each column weighted by the squares "
                    "that it is multiplied with in the calibration samples")
        .type_name("O")
        .suggest(words_of(scale_objective_names));
}

}  // namespace

void add_recipe(option_table& verb, precision_settings& precision) {
    verb.section("Precision");
    verb.add_option("--recipe", precision.recipe,
                    "what is done beyond the options given: fast, nothing; balanced (default where samples are given), all that usually "
                    "pays; best, whatever measures best, which takes long (docs/guide/recipes.md)")
        .type_name("RECIPE")
        .common()
        .suggest(graph::pipeline::recipe_names());
}

void add_precision(option_table& verb, precision_settings& precision, bool formats, bool seed) {
    verb.section("Precision");
    if (formats) {
        verb.add_option("--activation", precision.activation, "format of what layers read (`qk formats` lists them)")
            .type_name("F")
            .common()
            .suggest(format_words());
        verb.add_option("--weight", precision.weight, "format of weights").type_name("F").common().suggest(format_words());
        add_rounding(verb, precision, seed);
        verb.add_option("--bias", precision.bias, "format of biases; int32 for integers, float32 otherwise, if not given")
            .type_name("F")
            .suggest(format_words());
    }
    verb.add_option("--kv-cache", precision.kv_cache, "format of the keys and values that a decoder keeps")
        .type_name("F")
        .suggest(format_words());
    add_transformations(verb, precision);
    verb.add_option("--plan", precision.plan.file, "a requests file (docs/guide/plan.md), a saved plan, or AIMET encodings 1.0.0 or 2.0.0")
        .type_name("P.json")
        .common()
        .reads();
    add_target(verb, precision);
    verb.add_flag("--per-channel", precision.per_channel,
                  "a weight scale for each output channel: integers have it if nothing else is said");
    verb.add_flag("--per-tensor", precision.per_tensor, "one scale for all values of a weight");
    verb.add_option("--weight-method", precision.weight_method,
                    "how scales of integer weights are chosen: min_max (the largest weight is the largest code) or mse (the least squared "
                    "error); if not given, min_max, and below 8 bits the better of scales that use every code")
        .type_name("M")
        .suggest({"min_max", "mse"});
    verb.add_option("--weight-block", precision.weight_block, "a weight scale for each run of N along the reduction axis")
        .type_name("N")
        .at_least(1, "it is how many weights share a scale; leave --weight-block out for a scale for each channel, or give --per-tensor");
    verb.add_flag("--symmetric", precision.symmetric, "activations: zero point in the middle");
    verb.add_flag("--asymmetric-weights", precision.asymmetric_weights, "weights with a zero point");
    verb.add_flag("--reduce-range", precision.reduce_range, "weights use one bit less");
    verb.add_option("--pow2", precision.pow2, "power-of-two scales, chosen by non_overflow, nearest or min_mse")
        .type_name("RULE")
        .suggest(graph::pipeline::pow2_rule_names());
    verb.add_option("--calibration-method", precision.method,
                    "how ranges are chosen: " + comma_separated(method_words({"best"})) +
                        " (of these the one that does best on the inputs, by top1 with --labels, else by sqnr)")
        .type_name("M")
        .suggest(method_words({"best"}));
    verb.add_option("--percentile", precision.percentile, "per cent of values inside the range (99.999)")
        .type_name("P")
        .between(50, 100, "it is the per cent of values that stay inside the range, as 99.99");
    verb.add_option("--semantics", precision.semantics,
                    "ocp (default, but for the rule of MX scales), nvidia, quark, microxcaling, torchao, ml_dtypes, torch or onnx")
        .type_name("S")
        .suggest(words_of(semantics_names));
    add_searched_scales(verb, precision);
    verb.add_option("--rounding", precision.rounding, "half-even (default), half-away, half-up, toward-zero, up, down, stochastic")
        .type_name("R")
        .suggest(words_of(rounding_names));
    verb.add_option("--placement", precision.placement,
                    "layers (default), all or every: which activations a default format means (docs/guide/plan.md)")
        .type_name("P")
        .suggest({"layers", "all", "every"});
    verb.add_option("--approach", precision.approach, "static (default), dynamic or weight_only")
        .type_name("A")
        .suggest({"static", "dynamic", "weight_only"});
    verb.add_flag("--dual", precision.dual, "a tensor between two formats keeps both");
    verb.add_option("--strict", precision.strict,
                    "a request that cannot be met as asked is an error; with --strict=all one that a later request overrides is, too")
        .one_of({"requests", "all"})
        .alone("requests");
    verb.section("");
}

}  // namespace qk::tool
