// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/pipeline/recipe.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "graph/search/options.hpp"
#include "learn/learn_rounding.hpp"
#include "qk/graph/base/names.hpp"

namespace qk::graph::pipeline {
namespace {

constexpr double worth_scaling = 0.5;  ///< scaled channels cost a Mul before most layers: the error has to fall by half
constexpr const char* recipe_words[] = {"fast", "balanced", "best"};

// Ways, as reports name them, that a search takes too.
constexpr const char *measured_ranges = "calibration method by measurement",
                     *scaled_channels = "channels scaled where they differ (smooth_quant)",
                     *compensates = "weights below 8 bits rounded with compensation",
                     *learns_rounding = "weights below 8 bits learn their rounding (adaround)";

/// One way to do a step. `best` tries all ways of a step, `balanced` does the ways that are marked.
struct recipe_way {
    const char* name;  ///< as reports have it
    bool balanced;
    void (*apply)(asked_precision&);
    bool learns = false;  ///< needs the component learn
};

/// A step that recipes may add. The rows stand in the order in which `best` tries them: what changes the model comes before what depends
/// on it.
struct recipe_row {
    bool changes_model;                                  ///< weights or biases: a plan alone cannot hold it
    bool (*fits)(const asked_precision&, const model&);  ///< it may change something, and the user left it open
    std::vector<recipe_way> ways;
};

bool is_asked(const asked_precision& asked, role of, const auto& which) {
    return std::ranges::any_of(asked.requests, [&](const request& r) {
        return (has(r.role, of) || (of == role::activation && r.scope >= scope::tensor)) && !is_identity(r.what.format) && which(r.what);
    });
}
bool narrow_weights(const asked_precision& asked, bool integers) {
    return is_asked(asked, role::weight,
                    [&](const precision& p) { return bits_per_value(p.format) < 8 && (!integers || is_integer_format(p.format)); });
}
bool below_16_bits(const asked_precision& asked, role of) {
    return is_asked(asked, of, [](const precision& p) { return bits_per_value(p.format) < 16; });
}

/// Returns the number of layers of these types with constant weights.
std::ptrdiff_t layers_of(const model& m, std::initializer_list<std::string_view> types) {
    return std::ranges::count_if(m.graph().node(), [&](const onnx::NodeProto& n) {
        return std::ranges::find(types, n.op_type()) != types.end() && n.input_size() > 1 && m.is_constant(n.input(1));
    });
}
bool has_layer(const model& m, std::initializer_list<std::string_view> types) { return layers_of(m, types) > 0; }

/// Is true when most layers are products of matrices. Of a convolutional network only the classifier could have its channels scaled.
bool made_of_matrices(const model& m) { return layers_of(m, {"MatMul", "Gemm"}) > layers_of(m, {"Conv", "ConvTranspose"}); }

bool ranges_are_chosen(const asked_precision& asked, const model&) {
    const auto calibrated = [](const precision& p) {
        return is_integer_format(p.format) && !p.dynamic && !p.range && p.scale.empty() && !p.method;
    };
    return !asked.by_hand.method && asked.options.how == approach::static_ranges && is_asked(asked, role::activation, calibrated);
}
bool channels_may_scale(const asked_precision& asked, const model& m) {
    return !asked.by_hand.scaling && below_16_bits(asked, role::activation) && below_16_bits(asked, role::weight) && made_of_matrices(m);
}
bool weights_may_scale(const asked_precision& asked, const model& m) {
    return !asked.by_hand.scaling && narrow_weights(asked, false) && made_of_matrices(m);
}
bool zero_points_are_open(const asked_precision& asked, const model&) {
    return !asked.options.unshifted && narrow_weights(asked, true) && is_asked(asked, role::weight, [](const precision& p) {
        const integer* f = std::get_if<integer>(&p.format);
        return f != nullptr && f->bits < 8 && !f->symmetric && !f->pow2 && !p.symmetric && p.scale.empty();
    });
}
bool weight_scales_are_open(const asked_precision& asked, const model&) {
    return !asked.options.weight_method && is_asked(asked, role::weight, [](const precision& p) {
        return is_integer_format(p.format) && bits_per_value(p.format) < 8 && !p.method && p.scale.empty();
    });
}
/// Is the rule for the scales of these weights left open?
bool scale_rule_is_open(const asked_precision& asked, const request& r) {
    return has(r.role, role::weight) && !has(r.role, role::activation) && r.scope < scope::tensor && !asked.options.scale_rule &&
           !asked.options.semantics && !r.what.scale_rule && !r.what.semantics;
}
/// Have weights small blocks whose scales follow from their values?
bool searches_blocks(const asked_precision& asked, const request& r) {
    const microscaling* mx = std::get_if<microscaling>(&r.what.format);
    const bool few_bits = mx != nullptr && !has_integer_elements(*mx) && bits(mx->element) <= 6;
    return scale_rule_is_open(asked, r) && (few_bits || std::holds_alternative<nvfloat>(r.what.format));
}
bool searches_numbers(const asked_precision& asked, const request& r) {
    return scale_rule_is_open(asked, r) && is_integer_format(r.what.format) && bits_per_value(r.what.format) < 8 && r.what.scale.empty();
}
bool block_scales_are_open(const asked_precision& asked, const model&) {
    return std::ranges::any_of(asked.requests, [&](const request& r) { return searches_blocks(asked, r); });
}
void search_scales(asked_precision& asked, bool (*which)(const asked_precision&, const request&)) {
    for (request& r : asked.requests)
        if (which(asked, r)) r.what.scale_rule = scale_rule::search;
}
/// Are scales of weights searched, by an objective that nobody named?
bool weighs_open(const asked_precision& asked, const request& r) {
    return has(r.role, role::weight) && !has(r.role, role::activation) && r.what.scale_rule == scale_rule::search && !r.what.semantics &&
           !r.what.scale_objective && !asked.options.scale_objective;
}
bool objective_is_open(const asked_precision& asked, const model& m) {
    return std::ranges::any_of(asked.requests, [&](const request& r) { return weighs_open(asked, r); }) &&
           has_layer(m, {"Conv", "Gemm", "MatMul"});
}
bool rounding_is_open(const asked_precision& asked, const model& m) {
    return !asked.by_hand.rounding && narrow_weights(asked, false) && has_layer(m, {"Conv", "ConvTranspose", "Gemm", "MatMul"});
}
bool biases_may_move(const asked_precision& asked, const model& m) {
    return !asked.by_hand.bias && (below_16_bits(asked, role::activation) || below_16_bits(asked, role::weight)) &&
           has_layer(m, {"Conv", "ConvTranspose", "Gemm"});
}

void scale_by(asked_precision& asked, channel_scaling::rule how) {
    asked.options.scaling = {how, std::nullopt};
    asked.limits.worth = worth_scaling;
}

std::vector<recipe_row> every_recipe_row() {
    return {
        {true, channels_may_scale, {{scaled_channels, true, [](asked_precision& a) { scale_by(a, channel_scaling::rule::smooth_quant); }}}},
        {true,
         weights_may_scale,
         {{"channels scaled for narrow weights (awq)", false, [](asked_precision& a) { scale_by(a, channel_scaling::rule::awq); }}}},
        {false,
         zero_points_are_open,
         {{"weights below 8 bits with zero points (asymmetric)", false,
           [](asked_precision& a) {
               for (request& r : a.requests)
                   if (const integer* f = std::get_if<integer>(&r.what.format);
                       has(r.role, role::weight) && f != nullptr && f->bits < 8 && !f->symmetric && !f->pow2 && !r.what.symmetric)
                       r.what.symmetric = false;
           }}}},
        {false,
         weight_scales_are_open,
         {{"scales of weights by squared error (mse)", false, [](asked_precision& a) { a.options.weight_method = range_method::mse; }},
          {"scales of weights searched (search)", false, [](asked_precision& a) { search_scales(a, searches_numbers); }}}},
        {false,
         block_scales_are_open,
         {{"scales of weights' blocks searched (search)", true, [](asked_precision& a) { search_scales(a, searches_blocks); }}}},
        {true,
         objective_is_open,
         {{"searched scales weighted by what layers read (weighted)", false,
           [](asked_precision& a) {
               for (request& r : a.requests)
                   if (weighs_open(a, r)) r.what.scale_objective = scale_objective::weighted;
           }}}},
        {false,
         ranges_are_chosen,
         {{measured_ranges, true, [](asked_precision& a) { a.options.best_method = true, a.method_samples = 16; }}}},
        {true,
         rounding_is_open,
         {{compensates, true, [](asked_precision& a) { a.narrow_rounding = weight_rounding::compensated; }},
          {learns_rounding, false, [](asked_precision& a) { a.narrow_rounding = weight_rounding::adaround; }, true},
          {"weights below 8 bits, scales and biases learn (adaquant)", false,
           [](asked_precision& a) { a.narrow_rounding = weight_rounding::adaquant; }, true}}},
        {true,
         biases_may_move,
         {{"bias correction", true, [](asked_precision& a) { a.options.correct_bias = a.quiet_bias = true; }, true}}},
    };
}
const std::vector<recipe_row>& recipe_rows() {
    static const std::vector<recipe_row> rows = [] {
        std::vector<recipe_row> all = every_recipe_row();
        if (!has_learn())
            for (recipe_row& row : all) std::erase_if(row.ways, [](const recipe_way& way) { return way.learns; });
        return all;
    }();
    return rows;
}

/// A way to quantize that was carried out.
struct recipe_attempt {
    model made;
    asked_precision asked;
    quantize_result result;
    calibration seen;
    file_quality quality;
};

/// Tries the steps one after the other, each way on top of what is best so far.
class best_search {
  public:
    best_search(const model& m, const data_settings& data, bool full, const progress_function& progress)
        : model_(&m), data_(data), full_(full), progress_(&progress) {
        data_.hold_out = data.inputs.empty() || data.calibration.empty() ? 4 : 0;  // else the inputs judge
        judge_.emplace(m, data_, quality_samples::every);
    }

    recipe_attempt run(const asked_precision& asked, bool may_change, recipe_report& report) {
        recipe_attempt best = attempt(asked);
        report.trials.push_back({"as asked", best.quality.sqnr, 0, best.quality.top1, true});
        for (const recipe_row& row : recipe_rows()) {
            if ((row.changes_model && !may_change) || !row.fits(best.asked, *model_)) continue;
            std::optional<recipe_attempt> better;
            std::size_t kept = 0;
            for (const recipe_way& way : row.ways) {
                asked_precision next = best.asked;
                way.apply(next);
                if (next.method_samples > 0) next.method_samples = 64;
                recipe_attempt made = attempt(std::move(next));
                report.trials.push_back({way.name, made.quality.sqnr, made.quality.sqnr - best.quality.sqnr, made.quality.top1, false});
                if (!(made.quality.sqnr > (better ? better->quality : best.quality).sqnr)) continue;
                better = std::move(made), kept = report.trials.size() - 1;
            }
            if (!better) continue;
            best = std::move(*better);
            report.trials[kept].kept = true;
            report.steps.push_back(report.trials[kept].step);
        }
        report.quality = best.quality;
        return best;
    }

  private:
    recipe_attempt attempt(asked_precision asked) {
        recipe_attempt a{*model_, std::move(asked), {}, {}, {}};
        asked_precision now = a.asked;
        const bool learns = now.narrow_rounding && *now.narrow_rounding != weight_rounding::compensated;
        if (!learns && !now.by_hand.rounding) now.iterations = 0;  // --iterations is for the trials that learn
        a.result = make_plan(a.made, data_, std::move(now), &a.seen, full_, *progress_);
        a.quality = judge_->of(a.made, a.result.plan);
        return a;
    }

    const model* model_;
    data_settings data_;
    bool full_;
    const progress_function* progress_;
    std::optional<quality_judge> judge_;
};

}  // namespace

const char* name_of(recipe r) { return recipe_words[static_cast<std::size_t>(r)]; }
std::vector<std::string> recipe_names() { return {std::begin(recipe_words), std::end(recipe_words)}; }
recipe parse_recipe(std::string_view name) {
    const std::vector<std::string> known = recipe_names();
    const auto found = std::ranges::find(known, name);
    if (found == known.end())
        throw error("--recipe '" + std::string(name) + "' is none of " + comma_separated(known) + "." +
                    did_you_mean(std::string(name), known));
    return static_cast<recipe>(found - known.begin());
}

std::string recipe_report::text() const {
    std::string line = "recipe " + std::string(name_of(how)) + (why.empty() ? "" : " (" + why + ")");
    for (std::size_t i = 0; i < steps.size(); ++i) line += (i == 0 ? ": " : "; ") + steps[i];
    if (steps.empty() && how != recipe::fast) line += ": nothing to add to what was asked";
    return line;
}

nlohmann::ordered_json to_json(const recipe_report& r) {
    nlohmann::ordered_json j{{"name", name_of(r.how)}, {"why", r.why}, {"steps", r.steps}};
    if (r.trials.empty()) return j;
    if (r.quality) j["samples"] = r.quality->samples, j["of"] = r.quality->of;
    j["trials"] = nlohmann::ordered_json::array();
    for (const recipe_trial& t : r.trials) {
        nlohmann::ordered_json one{{"step", t.step}, {"sqnr", number_or_null(t.sqnr)}, {"gain", number_or_null(t.gain)}};
        if (t.top1) one["top1"] = *t.top1;
        one["kept"] = t.kept;
        j["trials"].push_back(std::move(one));
    }
    return j;
}

recipe_report choose_recipe(const std::string& asked, const data_settings& data, const asked_precision& precision) {
    const std::string missing = data.calibration.empty() && data.inputs.empty() ? "no samples are given"
                                : data.has_statistics() ? "'" + data.calibration.files[0] + "' holds statistics, not samples"
                                                        : "";
    const recipe named = asked.empty() ? recipe::balanced : parse_recipe(asked);
    if (named == recipe::fast) return {.how = named, .why = ""};
    if (!missing.empty() && !asked.empty())
        throw error("--recipe " + asked + " learns from samples, and " + missing + ": give --calibration X.npy, or say --recipe fast");
    if (precision.saved) {
        if (!asked.empty()) throw error("'" + precision.file + "' is a saved plan, to which a recipe adds nothing: drop --recipe");
        return {.how = recipe::fast, .why = "a saved plan stays as it is"};
    }
    if (!missing.empty()) return {.how = recipe::fast, .why = missing + "; with --calibration X.npy it would be balanced"};
    return {.how = named, .why = asked.empty() ? "samples are given" : ""};
}

void add_steps(asked_precision& asked, const model& m, bool may_change, recipe_report& report) {
    for (const recipe_row& row : recipe_rows()) {
        if ((row.changes_model && !may_change) || !row.fits(asked, m)) continue;
        for (const recipe_way& way : row.ways)
            if (way.balanced) way.apply(asked), report.steps.emplace_back(way.name);
    }
}

void add_recipe(mix_options& options, const mix_settings& settings, const model& m, bool may_change) {
    asked_precision asked = settings.precision.read(m, true);
    recipe_report report = choose_recipe(settings.precision.recipe, settings.data, asked);
    if (report.how == recipe::fast) return;
    const option_list all = list_options(options);
    for (const format_pair& pair : all.pairs) {
        asked.requests.push_back({.scope = scope::everything, .role = role::activation, .what = pair.activation});
        asked.requests.push_back({.scope = scope::everything, .role = role::weight, .what = pair.weight});
    }
    if (ranges_are_chosen(asked, m) && !settings.measured_by_user()) {  // the user's program is not asked for more than the search needs
        options.quantize.best_method = true;
        report.steps.emplace_back(measured_ranges);
    }
    if (may_change && rounding_is_open(asked, m)) {
        options.narrow_rounding = report.how == recipe::best ? weight_rounding::adaround : weight_rounding::compensated;
        report.steps.emplace_back(report.how == recipe::best ? learns_rounding : compensates);
    }
    if (may_change && report.how == recipe::best && channels_may_scale(asked, m)) {
        options.quantize.scaling = {channel_scaling::rule::smooth_quant, std::nullopt};
        report.steps.emplace_back(scaled_channels);
    }
    if (!report.steps.empty()) options.remarks.push_back(report.text());
}

quantize_result make_plan_by(recipe_report& report, model& m, const data_settings& data, asked_precision asked, bool may_change,
                             calibration* seen, bool full, const progress_function& progress) {
    if (report.how == recipe::best) {
        if (!first_float_output(m))
            throw error("--recipe best measures an output of floats, and the model has none: say --recipe balanced");
        recipe_attempt best = best_search(m, data, full, progress).run(asked, may_change, report);
        m = std::move(best.made);
        if (seen != nullptr) *seen = std::move(best.seen);
        return std::move(best.result);
    }
    if (report.how == recipe::balanced) {
        // A step that the user asked for looks at all samples.
        if (!asked.by_hand.rounding && !asked.by_hand.bias && !asked.by_hand.scaling) asked.limits.samples = 64;
        add_steps(asked, m, may_change, report);
    }
    return make_plan(m, data, std::move(asked), seen, full, progress);
}

}  // namespace qk::graph::pipeline
