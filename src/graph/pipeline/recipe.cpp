// SPDX-License-Identifier: Apache-2.0
#include "qk/graph/pipeline/recipe.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "graph/ops/op.hpp"
#include "graph/pipeline/bad_samples.hpp"
#include "graph/search/options.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/quantize/learning.hpp"

namespace qk::graph::pipeline {
namespace {

constexpr double worth_scaling = 0.5;  ///< scaled channels cost a Mul before most layers: the error has to fall by half
constexpr const char* recipe_words[] = {"fast", "balanced", "best"};

// Ways, as reports name them, that a search takes too.
constexpr const char *measured_ranges = "calibration method by measurement",
                     *scaled_channels = "channels scaled where they differ (smooth_quant)",
                     *compensates = "weights below 8 bits rounded with compensation",
                     *learns_rounding = "weights below 8 bits learn their rounding (adaround)";

/// One way to do a step. `best` tries all ways of a step, `balanced` those that are marked.
struct recipe_way {
    std::string name;  ///< as reports have it
    bool balanced;
    std::function<void(asked_precision&)> apply;
    bool learns = false;  ///< needs the component learn
};

/// A step that recipes may add. The rows stand in the order in which they are tried: what changes the model comes before what depends on
/// it.
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

/// Returns the number of layers with constant weights that are of one kind.
template <class Kind>
std::ptrdiff_t layers_of(const model& m, const Kind& kind) {
    return std::ranges::count_if(m.graph().node(), [&](const onnx::NodeProto& n) {
        const op_facts& is = graph::facts_of(n);
        return is.has(ops::layer) && kind(is) && n.input_size() > 1 && m.is_constant(n.input(1));
    });
}
bool has_layer(const model& m, ops::trait t) {
    return layers_of(m, [&](const op_facts& is) { return is.has(t); }) > 0;
}

/// Is true when most layers are products of matrices. Of a convolutional network only the classifier could have its channels scaled.
bool made_of_matrices(const model& m) {
    const auto pictures = [](const op_facts& is) { return is.has(ops::of_pictures); };
    return layers_of(m, std::not_fn(pictures)) > layers_of(m, pictures);
}

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
    return std::ranges::any_of(asked.requests, [&](const request& r) { return weighs_open(asked, r); }) && has_layer(m, ops::sums_axes);
}
bool rounding_is_open(const asked_precision& asked, const model& m) {
    return !asked.by_hand.rounding && narrow_weights(asked, false) && has_layer(m, ops::layer);
}
bool biases_may_move(const asked_precision& asked, const model& m) {
    return !asked.by_hand.bias && (below_16_bits(asked, role::activation) || below_16_bits(asked, role::weight)) &&
           has_layer(m, ops::biased);
}

void scale_by(asked_precision& asked, channel_scaling::rule how) {
    asked.options.scaling = {how, std::nullopt};
    asked.limits.worth = worth_scaling;
}

/// Returns a way for each calibration method but min_max, which is asked for where no method is.
std::vector<recipe_way> ways_to_range() {
    std::vector<recipe_way> ways;
    for (const range_method method : all_range_methods())
        if (method != range_method::min_max)
            ways.push_back(
                {std::string("ranges by ") + name_of(method), true, [method](asked_precision& a) { a.options.method = method; }});
    return ways;
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
        {false, ranges_are_chosen, ways_to_range()},
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
    static const std::vector<recipe_row> all = every_recipe_row(), without_learning = [] {
        std::vector<recipe_row> rows = all;
        for (recipe_row& row : rows) std::erase_if(row.ways, [](const recipe_way& way) { return way.learns; });
        return rows;
    }();
    return learn_component.is_entered() ? all : without_learning;
}

/// Fewer samples than these tell nothing from chance: nothing is held out, and nothing is chosen.
constexpr std::size_t least_samples = 8;
constexpr std::size_t trial_samples = 128;  ///< on which a recipe but `best` compares ways

/// Returns it without --iterations where nothing learns: they are for the trials that do.
asked_precision without_idle_iterations(asked_precision asked) {
    const bool learns = asked.narrow_rounding && *asked.narrow_rounding != weight_rounding::compensated;
    if (!learns && !asked.by_hand.rounding) asked.iterations = 0;
    return asked;
}

/// Samples that ways to quantize are judged on, and what they may learn from.
struct judged_part {
    data_settings data;
    quality_judge judge;
    std::optional<calibration> seen{};  ///< statistics of the model as it is
};

/// Carries ways to quantize out and measures them on samples that they did not learn from: on the inputs where those to calibrate with are
/// apart; else the samples are cut into parts, and each part judges what the others taught. `best`, whose steps take long, holds one part
/// out. docs/guide/recipes.md.
class held_out_trials {
  public:
    held_out_trials(const model& m, const data_settings& data, recipe how, const progress_function& progress)
        : model_(&m), how_(how), labelled_(!data.labels.empty()), progress_(&progress) {
        const bool apart = !data.inputs.empty() && !data.calibration.empty();
        const std::size_t count = apart ? 0 : samples_of(m, data.load_all_calibration(m)).count;
        if (!apart && count < least_samples) return;
        const std::size_t parts = apart ? 1 : how == recipe::best || count < 32 ? 4 : 2;
        for (std::size_t p = how == recipe::best ? parts - 1 : 0; p < parts; ++p) {
            data_settings own = data;
            if (!apart) own.held_out = {.part = p, .of = parts};
            quality_judge judge(m, own, how == recipe::best ? 0 : trial_samples / parts, how == recipe::best);
            parts_.push_back({std::move(own), std::move(judge)});
        }
    }

    bool any() const { return !parts_.empty(); }

    /// Measures one way.
    sample_quality operator()(const asked_precision& asked) {
        sample_quality all;
        for (judged_part& part : parts_) all.add(tried(part, asked, part.judge));
        return all;
    }
    /// Returns the quality of a way that measured `each`; where there are labels, of all samples that have one.
    file_quality quality(const asked_precision& asked, sample_quality each) {
        if (labelled_ && each.right.empty()) {
            each = {};
            for (judged_part& part : parts_) {
                quality_judge all(*model_, part.data, 0, true);
                each.add(tried(part, asked, all));
            }
        }
        return quality_of(each, parts_.front().judge.words());
    }

  private:
    sample_quality tried(judged_part& part, const asked_precision& asked, quality_judge& judge) {
        model m = *model_;
        asked_precision now = how_ == recipe::best ? without_idle_iterations(asked) : asked;
        now.statistics = statistics_for(part, now);
        const quantize_result made = make_plan(m, part.data, std::move(now), nullptr, false, *progress_);
        return judge.of(m, made.plan);
    }
    /// Returns the statistics for every calibration method, which are gathered once; nullptr where the way has others.
    const calibration* statistics_for(judged_part& part, const asked_precision& asked) {
        if (asked.options.transforms() || asked.options.best_method || asked.saved || part.data.has_statistics()) return nullptr;
        if (!part.seen) {
            asked_precision every = asked;
            every.options.best_method = how_ != recipe::fast && ranges_are_chosen(asked, *model_);
            part.seen = calibrate_for(*model_, part.data, every, false, *progress_);
        }
        return part.seen->empty() ? nullptr : &*part.seen;
    }

    const model* model_;
    recipe how_;
    bool labelled_;
    const progress_function* progress_;
    std::vector<judged_part> parts_;
};

/// What a recipe chose.
struct recipe_choice {
    asked_precision asked;
    sample_quality each;
};

recipe_trial trial_of(const std::string& name, const sample_quality& q, double gain = 0, double chance = 0) {
    recipe_trial t{.step = name, .sqnr = q.sqnr(), .gain = gain, .chance = chance};
    if (!q.right.empty()) t.top1 = value_over(find_metric("top1"), q.right);
    return t;
}

/// By how many decibels the error of a sample fell, in the mean over the samples, and what chance may make of it.
struct mean_gain {
    double value = 0, chance = 0;
};
/// `z`: how many standard errors chance may reach, as of a normal distribution. One sample counts like any other here: a sum over all
/// samples would be ruled by the few that are far off.
mean_gain gain_of(const sample_quality& before, const sample_quality& after, double z) {
    constexpr double most = 60;  // decibels: a sample without any error says no more than that
    std::vector<double> gains;
    for (std::size_t i = 0; i < before.noise.size(); ++i) {
        const double b = before.noise[i][0], a = after.noise[i][0];
        if (before.noise[i][counted] == 0) continue;
        gains.push_back(a == b ? 0 : std::clamp(10 * std::log10(b / a), -most, most));
    }
    const auto n = static_cast<double>(gains.size());
    double mean = 0, squares = 0;
    for (const double g : gains) mean += g / n;
    for (const double g : gains) squares += (g - mean) * (g - mean);
    return {mean, student(z, gains.size()) * std::sqrt(squares / (n * std::max(n - 1, 1.0)))};
}

/// Tries the ways of a step on top of what is chosen, and takes the best of those that gain more than chance may.
void try_step(const recipe_row& row, held_out_trials& trials, recipe_choice& chosen, recipe_report& report) {
    std::vector<const recipe_way*> ways;
    for (const recipe_way& way : row.ways)
        if (report.how == recipe::best || way.balanced) ways.push_back(&way);
    // Of many ways one is more likely to look good by chance: 2 standard errors for one, 2.7 for six.
    const double z = 2 + 0.4 * std::log(static_cast<double>(std::max<std::size_t>(ways.size(), 1)));
    std::optional<recipe_choice> better;
    std::size_t kept = 0;
    for (const recipe_way* way : ways) {
        asked_precision next = chosen.asked;
        way->apply(next);
        sample_quality made;
        try {
            made = trials(next);
        } catch (const error& e) {  // a way that this model cannot go
            report.trials.push_back({.step = way->name, .failed = e.what()});
            continue;
        }
        const mean_gain gain = gain_of(chosen.each, made, z);
        report.trials.push_back(trial_of(way->name, made, gain.value, gain.chance));
        if (!(gain.value > gain.chance) || !(made.sqnr() > (better ? better->each : chosen.each).sqnr())) continue;
        better = {std::move(next), std::move(made)}, kept = report.trials.size() - 1;
    }
    if (!better) return;
    chosen = std::move(*better);
    report.trials[kept].kept = true;
    report.steps.push_back(report.trials[kept].step);
}

/// Returns what was asked with the steps that gain on samples held out; as it was asked where there are none to hold out. `as_asked` gets
/// the quality of what was asked.
asked_precision choose_steps(recipe_report& report, const model& m, const data_settings& data, const asked_precision& asked,
                             bool may_change, std::optional<file_quality>& as_asked, const progress_function& progress) {
    const bool learned_by_hand = asked.options.rounding == weight_rounding::adaround || asked.options.rounding == weight_rounding::adaquant;
    if (!data.has_samples() || !first_float_output(m) || (report.how == recipe::fast && learned_by_hand)) return asked;
    held_out_trials trials(m, data, report.how, progress);
    if (!trials.any()) {
        if (report.how != recipe::fast) report.why = "fewer than " + std::to_string(least_samples) + " samples tell nothing from chance";
        report.how = recipe::fast;
        return asked;
    }
    const recipe_choice plain{asked, trials(asked)};
    recipe_choice chosen = plain;
    if (report.how != recipe::fast) {
        report.trials = {trial_of("as asked", plain.each)};
        report.trials.front().kept = true;
        for (const recipe_row& row : recipe_rows())
            if ((may_change || !row.changes_model) && row.fits(chosen.asked, m)) try_step(row, trials, chosen, report);
    }
    report.quality = trials.quality(chosen.asked, std::move(chosen.each));
    if (!report.steps.empty()) as_asked = trials.quality(plain.asked, plain.each);
    return std::move(chosen.asked);
}

/// Makes the plan that was chosen, by all samples, and the one that was asked for, and returns the better on these samples: the last word
/// on what trials chose by fewer.
quantize_result better_of(recipe_report& report, model& m, const data_settings& data, const asked_precision& asked, asked_precision chosen,
                          const std::optional<file_quality>& quality_as_asked, calibration* seen, bool full,
                          const progress_function& progress) {
    model plain = m;
    quality_judge judge(m, data, trial_samples, false);
    quantize_result made = make_plan(m, data, std::move(chosen), seen, full, progress);
    const sample_quality with = judge.of(m, made.plan);
    calibration plain_seen;
    quantize_result without = make_plan(plain, data, asked, &plain_seen, full, progress);
    const sample_quality fast = judge.of(plain, without.plan);
    const double gain = gain_of(fast, with, 0).value;
    const bool better = gain >= 0 && with.sqnr() >= fast.sqnr();
    report.trials.push_back(trial_of("all that is kept, learned from every sample", with, gain));
    report.trials.back().kept = better;
    if (better) return made;
    report.steps.clear();
    report.quality = quality_as_asked;
    m = std::move(plain);
    if (seen != nullptr) *seen = std::move(plain_seen);
    return without;
}

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
    if (steps.empty() && how != recipe::fast)
        line += trials.size() > 1 ? ": no step gains more than chance may" : ": nothing to add to what was asked";
    return line;
}

nlohmann::ordered_json to_json(const recipe_report& r) {
    nlohmann::ordered_json j{{"name", name_of(r.how)}, {"why", r.why}, {"steps", r.steps}};
    if (r.trials.empty()) return j;
    if (r.quality) j["samples"] = r.quality->samples, j["of"] = r.quality->of;
    j["trials"] = nlohmann::ordered_json::array();
    for (const recipe_trial& t : r.trials) {
        nlohmann::ordered_json one{
            {"step", t.step}, {"sqnr", number_or_null(t.sqnr)}, {"gain", number_or_null(t.gain)}, {"chance", number_or_null(t.chance)}};
        if (t.top1) one["top1"] = *t.top1;
        if (!t.failed.empty()) one["failed"] = t.failed;
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
    if (may_change && !settings.elsewhere && report.how == recipe::best && channels_may_scale(asked, m)) {
        options.quantize.scaling = {channel_scaling::rule::smooth_quant, std::nullopt};
        report.steps.emplace_back(scaled_channels);
    }
    if (!report.steps.empty()) options.remarks.push_back(report.text());
}

quantize_result make_plan_by(recipe_report& report, model& m, const data_settings& data, asked_precision asked, bool may_change,
                             calibration* seen, bool full, const progress_function& progress) {
    if (report.how == recipe::best && !first_float_output(m))
        throw error("--recipe best measures an output of floats, and the model has none: say --recipe balanced");
    const layer_view found(m);  // once: the copies that trials change share it
    data_settings read = data;
    if (data.has_samples() && !data.has_statistics())
        read.read_before = std::make_shared<const named_tensors>(data.load_all_calibration(m));
    // A step that the user asked for looks at all samples.
    if (report.how == recipe::balanced && !asked.by_hand.rounding && !asked.by_hand.bias && !asked.by_hand.scaling)
        asked.limits.samples = 64;
    asked_precision chosen = asked;
    std::optional<file_quality> as_asked;
    try {
        chosen = choose_steps(report, m, read, asked, may_change, as_asked, progress);
    } catch (const error& e) {  // as where quantizing changes how many boxes are found; the file can be written all the same
        report.not_measured = e.what();
        report.steps.clear();
    }
    if (report.how == recipe::best) asked = without_idle_iterations(asked), chosen = without_idle_iterations(chosen);
    if (!report.steps.empty()) return better_of(report, m, read, asked, std::move(chosen), as_asked, seen, full, progress);
    std::optional<quality_judge> judge;  // without samples to hold out those that taught judge
    const bool measures = !report.quality && report.not_measured.empty() && read.has_samples() && first_float_output(m);
    if (measures) judge.emplace(m, read, trial_samples, true);
    quantize_result made = make_plan(m, read, std::move(asked), seen, full, progress);
    if (judge) report.quality = quality_of(judge->of(m, made.plan), judge->words());
    return made;
}

}  // namespace qk::graph::pipeline
