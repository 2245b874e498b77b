// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/pipeline/plan.hpp"

#include <onnx/onnx_pb.h>

#include <set>

#include "graph/export/style.hpp"
#include "graph/pipeline/transform.hpp"
#include "graph/quantize/missing_biases.hpp"
#include "graph/quantize/model_changes.hpp"
#include "graph/quantize/pair_safe.hpp"
#include "graph/quantize/weigh_scales.hpp"
#include "qk/graph/calibrate/calibrate.hpp"
#include "qk/graph/export/drop_activations.hpp"
#include "qk/graph/pipeline/expand.hpp"
#include "qk/graph/quantize/learning.hpp"
#include "qk/graph/quantize/plan_file.hpp"
#include "qk/graph/recover/already_quantized.hpp"
#include "qk/graph/recover/recover.hpp"
#include "qk/graph/search/choose_method.hpp"

namespace qk::graph::pipeline {

namespace {

/// Returns what calibration has to gather for the ranges that the formats need; nullopt if no format needs a range.
std::optional<calibrate_options> needed_ranges(const asked_precision& asked) {
    bool ranges = false, dynamic = asked.options.how == approach::dynamic;
    calibrate_options wanted{.histograms = false};
    for (const request& r : asked.requests) {
        precision p = r.what;
        if (asked.options.target) asked.options.target->complete(p, "", false);  // as the planner will
        const floating* f = std::get_if<floating>(&p.format);
        const bool needs = is_integer_format(p.format) || is_table_format(p.format) || has_floating_scales(p.format) ||
                           (f != nullptr && is_scaled(*f) && !is_identity(p.format));
        const bool activation = has(r.role, role::activation) || r.scope >= scope::tensor;
        if (!needs || !activation || p.range || !p.scale.empty() ||
            (r.scope == scope::everything && (dynamic || asked.options.how == approach::weight_only)))
            continue;
        ranges = true;
        const range_method method = p.method.value_or(asked.options.method);
        const calibrate_options needed = options_for(method);
        wanted.moving_average |= needed.moving_average || asked.options.best_method;
        wanted.histograms |= needed.histograms || asked.options.best_method || p.pow2 == pow2_rule::min_mse;
    }
    return ranges ? std::optional(wanted) : std::nullopt;
}

/// Is true when an activation may get a format that has no scale and ends below float32's values: what calibration sees of it is a remark.
bool may_overflow(const asked_precision& asked) {
    return std::ranges::any_of(asked.requests, [&](const request& r) {
        const floating* f = std::get_if<floating>(&r.what.format);
        const bool activation = has(r.role, role::activation) || r.scope >= scope::tensor;
        const bool reached = r.scope != scope::everything || asked.options.how != approach::weight_only;
        return f != nullptr && !is_scaled(*f) && max_exponent(*f) < max_exponent(bf16) && activation && reached;
    });
}

method_choice choose_method(const model& m, const data_settings& data, const asked_precision& asked, const calibration& seen,
                            const progress_function& progress) {
    if (data.inputs.empty() && data.has_statistics())
        throw error("--calibration-method best measures on samples, and '" + data.calibration.files[0] +
                    "' holds statistics: give --inputs X.npy too");
    const bool learned = data.inputs.empty() || data.held_out.of > 0;
    const named_tensors samples = learned ? data.load_calibration(m) : data.load_inputs(m);
    score_options scoring{.metric = "sqnr", .labels = {}, .session = {.threads = data.threads, .stop = {}}};
    if (!data.labels.empty() && data.held_out.of == 0)
        scoring.metric = "top1", scoring.labels = data.load_labels(m, samples, 0),
        scoring.positions.ignore_label = data.positions.ignore_label;
    return graph::choose_method(m, asked.requests, asked.options, seen, samples, std::move(scoring),
                                progress_of(progress, "comparing calibration methods"));
}

/// Returns the part of the plan for layers whose weights are rounded as `wanted`.
precision_plan part_of(const model& m, const precision_plan& plan, const std::function<weight_rounding(const std::string&)>& how,
                       weight_rounding wanted) {
    precision_plan part;
    for (const auto& n : m.graph().node())
        for (int i = 0; i < std::min(n.input_size(), 2); ++i)
            if (const quantizer* q = plan.find({n.input(i), n.name(), i}); q != nullptr && how(n.name()) == wanted)
                part.edges[{n.input(i), n.name(), i}] = *q;
    return part;
}

/// Returns the layers whose weights have fewer than 8 bits under the plan.
std::set<std::string> narrow_layers(const model& m, const precision_plan& plan) {
    std::set<std::string> names;
    for (const auto& n : m.graph().node())
        for (int i = 0; i < std::min(n.input_size(), 2); ++i) {
            if (!m.is_constant(n.input(i))) continue;
            const quantizer* q = plan.find({n.input(i), n.name(), i});
            if (q != nullptr && bits_per_value(q->format) < 8) names.insert(n.name());
        }
    return names;
}

constexpr const char* weighted_words = "the scale objective weighted";

/// Throws an error if a step has no samples to look at.
void need_samples(const data_settings& data, const std::string& step) {
    if ((data.calibration.empty() && data.inputs.empty()) || data.has_statistics())
        throw error(step + " needs the samples themselves: give --calibration X.npy");
}

/// Searches the scales that the plan holds by what the layers read, where the objective is weighted.
void weigh_scales_of_plan(const model& m, const data_settings& data, const asked_precision& asked, quantize_result& result,
                          const progress_function& progress) {
    if (asked.saved || !weighs_plan_scales(m, result.plan)) return;
    need_samples(data, weighted_words);
    const auto done = weigh_plan_scales(m, result.plan, data.load_calibration(m, asked.limits.samples), {.threads = data.threads},
                                        progress_of(progress, "searching scales by the layers' inputs"));
    for (edge_report& e : result.report.edges)
        if (const quantizer* q = result.plan.find(e.edge)) e.how = *q;
    add_to(result.report, done);
}

/// Rounds weights as the options and the requests say, and corrects biases. Changes the model, and the plan where scales are learned.
void round_weights(model& m, const data_settings& data, const asked_precision& asked, quantize_result& result,
                   const progress_function& progress) {
    const std::set<std::string> narrow = asked.narrow_rounding ? narrow_layers(m, result.plan) : std::set<std::string>();
    const auto how = [&](const std::string& layer) {
        const auto own = result.rounding.find(layer);
        if (own != result.rounding.end()) return own->second;
        return narrow.contains(layer) ? *asked.narrow_rounding : asked.options.rounding;
    };
    std::set<weight_rounding> asked_for{asked.options.rounding};
    if (!narrow.empty()) asked_for.insert(*asked.narrow_rounding);
    for (const auto& [layer, own] : result.rounding) asked_for.insert(own);
    const bool learns = asked_for.contains(weight_rounding::adaround) || asked_for.contains(weight_rounding::adaquant);
    if (!learns && asked.iterations > 0)
        throw error("--iterations is for weights that learn their rounding, and none does: say --weight-rounding adaround or adaquant too");
    asked_for.erase(weight_rounding::nearest);
    const precision_plan plain = part_of(m, result.plan, how, weight_rounding::nearest);
    const bool weighs = weighs_scales(m, plain);
    if (asked_for.empty() && !asked.options.correct_bias && !weighs) return;
    need_samples(data, !asked_for.empty() ? name_of(*asked_for.begin()) + std::string(" rounding of weights")
                       : weighs           ? std::string(weighted_words)
                                          : std::string("correction of biases"));
    const named_tensors samples = data.load_calibration(m, asked.limits.samples);
    if (asked_for.contains(weight_rounding::compensated))
        add_to(result.report, compensate_rounding(m, part_of(m, result.plan, how, weight_rounding::compensated), samples,
                                                  {.threads = data.threads}, progress_of(progress, "rounding weights")));
    if (weighs)
        add_to(result.report,
               weigh_scales(m, plain, samples, {.threads = data.threads}, progress_of(progress, "searching scales by the layers' inputs")));
    if (learns || asked.options.correct_bias) {
        learn_options options{.threads = data.threads, .seed = asked.seed, .correct_bias = asked.options.correct_bias};
        if (asked.iterations > 0) options.iterations = asked.iterations;
        const auto done = learn_rounding(m, result.plan, samples, how, options,
                                         progress_of(progress, learns ? "learning to round" : "correcting biases"));
        for (edge_report& e : result.report.edges)
            if (const quantizer* q = result.plan.find(e.edge)) e.how = *q;
        add_to(result.report, done);
    }
    // What a recipe chose is no request, so a layer that it cannot have is no remark.
    std::erase_if(result.report.notes, [&](const plan_note& n) {
        return (asked.narrow_rounding && n.origin == "weight rounding") || (asked.quiet_bias && n.origin == "bias correction");
    });
    for (const plan_note& n : result.report.notes)
        if ((asked.options.strict || asked.options.strict_all) && (n.origin == "weight rounding" || n.origin == "bias correction"))
            throw error(n.subject + ": " + n.text + " (strict)");
}

/// Makes the int8 weights of products pair-safe: before other rounding chooses how weights are rounded at their scales, and after it.
class pair_safety {
  public:
    pair_safety(model& m, const data_settings& data, const asked_precision& asked, quantize_result& result,
                const progress_function& progress)
        : m_(&m), asked_(&asked), result_(&result), options_{.threads = data.threads} {
        if (!asked.pair_safe || asked.saved || codes_for(asked.options) != int8_codes::where_safe) return;
        for (const std::string& layer : pairing_layers(m, result.plan)) (is_rounded(layer) ? rounded_ : nearest_).push_back(layer);
        const bool given =
            asked.options.how == approach::dynamic ? !data.calibration.empty() : !(data.calibration.empty() && data.inputs.empty());
        if (given && !data.has_statistics() && !(nearest_.empty() && rounded_.empty()))
            moments_ = gather_moments(m, result.plan, data.load_calibration(m, moment_samples), options_,
                                      progress_of(progress, "looking at inputs"));
    }

    void before_rounding() {
        pair_safe_options only_scales = options_;
        only_scales.moves = false;
        make(rounded_, only_scales);
        add_to(result_->report, make(nearest_, options_));
    }
    void after_rounding() {
        pair_safe_options only_moves = options_;
        only_moves.rescales = false;
        add_to(result_->report, make(rounded_, only_moves));
    }

  private:
    bool is_rounded(const std::string& layer) const {
        const auto own = result_->rounding.find(layer);
        return (own != result_->rounding.end() ? own->second : asked_->options.rounding) != weight_rounding::nearest;
    }
    std::vector<pair_safe_weight> make(const std::vector<std::string>& layers, const pair_safe_options& options) {
        if (layers.empty()) return {};
        auto done = make_pair_safe(*m_, result_->plan, layers, moments_, options);
        for (edge_report& e : result_->report.edges)
            if (const quantizer* q = result_->plan.find(e.edge)) e.how = *q;
        return done;
    }

    model* m_;
    const asked_precision* asked_;
    quantize_result* result_;
    pair_safe_options options_;
    std::vector<std::string> nearest_, rounded_;
    layer_moments moments_;
};

/// Takes a saved plan as it is and describes it.
quantize_result take_saved(const model& m, const asked_precision& asked, const calibration& seen) {
    quantize_result result{*asked.saved,
                           describe_plan(layer_view(m), *asked.saved, seen.empty() ? nullptr : &seen, "saved plan " + asked.file)};
    result.report.notes.insert(result.report.notes.begin(), asked.notes.begin(), asked.notes.end());
    if (result.report.edges.empty() && asked.saved->accumulators.empty())
        result.report.notes.push_back({plan_note::kind::unchanged, m.label(),
                                       "the plan changes nothing: it has no quantizer for any value of the model", asked.file});
    throw_violations(result.report, asked.options);
    return result;
}

}  // namespace

model load_for_planning(const model_source& from, std::vector<plan_note>* notes) {
    model m = from.load();
    if (notes != nullptr) *notes = note_quantized(m);
    prepare_for_plan(m, notes);
    return m;
}

calibration calibrate_for(const model& m, const data_settings& data, const asked_precision& asked, bool histograms,
                          const progress_function& progress, const named_tensors* inputs, named_tensors* outputs) {
    if (data.has_statistics()) return load_calibration(data.calibration.files[0]);
    const auto needed = needed_ranges(asked);
    if ((!needed && !histograms && !may_overflow(asked)) || asked.saved || (data.calibration.empty() && data.inputs.empty())) return {};
    calibrate_options wanted = needed.value_or(calibrate_options{.histograms = false});
    wanted.histograms = histograms || (needed && needed->histograms);
    wanted.threads = data.threads;
    const bool of_inputs = inputs != nullptr && data.calibration.empty();
    const named_tensors samples = of_inputs ? *inputs : data.load_calibration(m);
    return calibrate(m, samples, wanted, progress_of(progress, "calibrating"), of_inputs ? outputs : nullptr);
}

quantize_result make_plan(model& m, const data_settings& data, asked_precision asked, calibration* seen, bool full,
                          const progress_function& progress) {
    for (const choice_request& c : asked.choices)
        if (!c.settled)
            throw error(c.origin + ": a list is what `qk search` and `qk sensitivity` choose from; here each key has one value");
    if (asked.criterion)
        throw error(asked.criterion->origin + ": a criterion is the goal of `qk search`; nothing is searched here: leave it out");
    std::vector<std::string> new_biases;
    if (asked.options.correct_bias) new_biases = add_missing_biases(m);
    if (asked.options.transforms() && asked.saved)
        throw error("scaling of channels and rotation go before a plan is made, and a saved plan is given: leave one of them out");
    const transformation changed = transform(m, data, asked.requests, asked.options, asked.limits);
    calibration own = asked.statistics != nullptr ? *asked.statistics : calibrate_for(m, data, asked, full, progress);
    std::optional<method_choice> method;
    if (asked.options.best_method && !own.empty() && (full || needed_ranges(asked))) {
        method = choose_method(m, data, asked, own, progress);
        asked.options.method = method->method();
    }
    quantize_result result;
    if (asked.saved) {
        apply_moved(m, *asked.saved);
        if (!asked.saved->moved.empty()) asked.options.rounding = weight_rounding::nearest;  // of values that are rounded already
        result = take_saved(m, asked, own);
    } else {
        // A report alone gathers statistics, too; the plan must be the same without one, so they serve the report only.
        const calibration* seen_values = own.empty() ? nullptr : &own;
        result = planner(m, needed_ranges(asked) ? seen_values : nullptr, seen_values).plan(asked.requests, asked.options);
    }
    if (!own.whole.empty()) result.report.notes.push_back({plan_note::kind::together, "the data", own.whole, "calibration"});
    result.plan.accumulators.merge(asked.accumulators);
    result.report.method = std::move(method);
    add_to(result.report, changed);
    result.report.notes.insert(result.report.notes.begin(), asked.unused.begin(), asked.unused.end());
    throw_violations(result.report, asked.options);
    std::optional<constants_before> constants;
    if (asked.keeps_changes && !asked.saved) constants.emplace(m);
    weigh_scales_of_plan(m, data, asked, result, progress);
    pair_safety pairs(m, data, asked, result, progress);
    pairs.before_rounding();
    round_weights(m, data, asked, result, progress);
    pairs.after_rounding();
    if (constants) {
        constants->record(m, result.plan);
        for (const std::string& name : new_biases) result.plan.moved.try_emplace(name);
        changed.into(result.plan);
    }
    if (seen != nullptr) *seen = std::move(own);
    return result;
}

int8_codes codes_for(const quantize_options& options) {
    if (!options.target) return int8_codes::where_safe;
    return options.target->signed_int8     ? int8_codes::as_signed
           : options.target->unsigned_int8 ? int8_codes::as_unsigned
                                           : int8_codes::where_safe;
}

export_style style_of(const std::string& name) { return name.empty() ? export_styles().front() : export_style_from(name); }

void write_for(const target_profile& target, export_options& options, bool style_named) {
    if (!style_named && !target.file.style.empty()) options.style = export_style_from(target.file.style);
    if (target.file.reads && !options.style.row().is_read_by(*target.file.reads))
        throw error("--target " + target.name + " does not have what style " + options.style.name() + " writes; leave --export out" +
                    (target.file.style.empty() ? "" : ", which writes " + target.file.style));
    options.inlined = options.inlined || target.file.inlined;
    options.pairs_of_bytes_alone = !target.file.wide_pairs;
    options.guards = target.file.guards;
    options.dynamic_quantize = target.file.dynamic_quantize;
}

export_result write_plan(const model& m, const precision_plan& plan, export_options options, bool keep_int8) {
    const detail::style_row& style = options.style.row();
    if (keep_int8) options.int8_weights = int8_codes::as_signed;
    model bare = m;
    std::vector<std::string> gone;
    if (style.for_onnxruntime) gone = graph::drop_needless_activations(bare, plan);
    precision_plan written = plan;
    const std::size_t changed = style.signed_activations || keep_int8 ? 0 : store_activations_unsigned(written, m);
    export_result result = export_model(bare, written, options);
    if (changed > 0) {
        remember_int8(result.exported, plan, written);
        result.notes.push_back(std::to_string(changed) +
                               " int8 activations written as uint8 with zero point + 128: the same values, and onnxruntime fuses more (qk "
                               "quantize --keep-int8 writes int8)");
    }
    if (!plan.accumulators.empty())
        result.notes.push_back(std::to_string(plan.accumulators.size()) +
                               " layers have an accumulator, which no ONNX file can hold: save the plan (--save-plan P.json) and run `qk "
                               "evaluate --plan P.json`");
    if (!gone.empty())
        result.notes.push_back(std::to_string(gone.size()) +
                               " Relu and Clip nodes left out: the quantizers behind them clamp to the same bounds");
    return result;
}

}  // namespace qk::graph::pipeline
