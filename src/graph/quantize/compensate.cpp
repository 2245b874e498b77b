// SPDX-License-Identifier: Apache-2.0
// Definitions of compensate.hpp: adds up the matrices of some layers over the samples, then rounds these layers.
#include <onnx/onnx_pb.h>
#include <Eigen/Cholesky>
#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "graph/calibrate/searched_scales.hpp"
#include "graph/evaluate/execute/runner.hpp"
#include "graph/ops/conv.hpp"
#include "graph/ops/widened.hpp"
#include "graph/quantize/bias_codes.hpp"
#include "graph/quantize/weigh_scales.hpp"
#include "graph/quantize/weight_rows.hpp"
#include "qk/graph/base/names.hpp"
#include "qk/graph/quantize/compensate.hpp"

namespace qk::graph {
namespace detail {

// Equations (2) and (3) of compensate.hpp on plain matrices.

using double_matrix = Eigen::MatrixXd;

/// Returns e h e^T summed over the rows e of E: the squared error of the outputs.
inline double output_error(const double_matrix& e, const double_matrix& h) { return (e * h).cwiseProduct(e).sum(); }

/// Rounds w [rows, n] with compensation for h [n, n] (symmetric). `lengths` cuts the columns into blocks of neighbours; round(block,
/// values) rounds the columns of one block (row-major floats) in place. Returns false and leaves w unchanged if h has no inverse or
/// rounding to nearest is as good. `nearest` and `compensated` receive the errors of the two.
template <class Round>
bool round_rows(double_matrix& w, const double_matrix& h, const std::vector<std::size_t>& lengths, const Round& round, double& nearest,
                double& compensated) {
    const Eigen::Index n = w.cols(), rows = w.rows();
    const auto rounded = [&](std::size_t block, const auto& part) {
        std::vector<float> values(static_cast<std::size_t>(part.size()));
        Eigen::Map<Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>> view(values.data(), rows, part.cols());
        view = part.template cast<float>();
        round(block, std::span<float>(values));
        return double_matrix(view.template cast<double>());
    };
    std::vector<Eigen::Index> first;
    Eigen::Index at = 0;
    for (const std::size_t l : lengths) first.push_back(at), at += static_cast<Eigen::Index>(l);

    double_matrix plain(rows, n);
    for (std::size_t b = 0; b < lengths.size(); ++b) {
        const auto l = static_cast<Eigen::Index>(lengths[b]);
        plain.middleCols(first[b], l) = rounded(b, w.middleCols(first[b], l));
    }
    nearest = compensated = output_error(w - plain, h);
    const double mean = h.diagonal().mean();
    if (!(mean > 0) || !h.allFinite() || !w.allFinite()) return false;

    // Blocks with the largest inputs come first, so that the many smaller ones behind them can take up their errors.
    std::vector<std::size_t> order(lengths.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::vector<double> weight;
    for (std::size_t b = 0; b < lengths.size(); ++b)
        weight.push_back(h.diagonal().segment(first[b], static_cast<Eigen::Index>(lengths[b])).mean());
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return weight[a] > weight[b]; });
    Eigen::PermutationMatrix<Eigen::Dynamic, Eigen::Dynamic, int> sorted(n);
    std::vector<Eigen::Index> edge{0};  // first columns of the sorted blocks, and the end
    for (const std::size_t b : order) {
        const auto l = static_cast<Eigen::Index>(lengths[b]);
        for (Eigen::Index i = 0; i < l; ++i) sorted.indices()[first[b] + i] = static_cast<int>(edge.back() + i);
        edge.push_back(edge.back() + l);
    }

    double_matrix v = w * sorted.transpose();
    double_matrix damped = sorted * h * sorted.transpose();
    damped.diagonal().array() += 0.01 * mean;
    const Eigen::LLT<double_matrix> forward(damped);
    if (forward.info() != Eigen::Success) return false;
    const Eigen::LLT<double_matrix, Eigen::Upper> inverse(forward.solve(double_matrix::Identity(n, n)));
    if (inverse.info() != Eigen::Success) return false;
    const double_matrix u = inverse.matrixU();

    // Columns behind a panel of blocks are updated once for the whole panel: one matrix product instead of many thin ones.
    double_matrix q(rows, n), x(rows, n);
    for (std::size_t k = 0; k < order.size();) {
        const Eigen::Index start = edge[k];
        std::size_t stop = k;
        while (stop < order.size() && edge[stop] - start < 64) ++stop;
        const Eigen::Index end = edge[stop];
        for (; k < stop; ++k) {
            const Eigen::Index here = edge[k], next = edge[k + 1], l = next - here;
            q.middleCols(here, l) = rounded(order[k], v.middleCols(here, l));
            double_matrix e = v.middleCols(here, l) - q.middleCols(here, l);
            u.block(here, here, l, l).triangularView<Eigen::Upper>().solveInPlace<Eigen::OnTheRight>(e);
            v.middleCols(next, end - next).noalias() -= e * u.block(here, next, l, end - next);
            x.middleCols(here, l) = e;
        }
        v.rightCols(n - end).noalias() -= x.middleCols(start, end - start) * u.block(start, end, end - start, n - end);
    }
    q = q * sorted;
    const double error = output_error(w - q, h);
    if (!(error < nearest)) return false;
    compensated = error;
    w = q;
    return true;
}

/// What the matrices are for: weights rounded with compensation; or scales that are searched with the diagonal as weights, those of blocks,
/// which weights are rounded by at once, or those that the plan holds.
enum class matrix_use : std::uint8_t { compensates, weighs_blocks, weighs_plan };

/// A layer that is being compensated: its product, and the matrix of equation (1) for each group and run of columns. Where only its scales
/// are weighted by the diagonal, each block is a run.
struct compensation {
    matrix_use use = matrix_use::compensates;
    std::optional<quantizer> searched;  ///< weighs_plan: with the scales that were found
    const onnx::NodeProto* node = nullptr;
    const quantizer* how = nullptr;
    tensor weight;                        ///< as float32
    data_type type = data_type::float32;  ///< in the model
    weight_rows rows;
    std::vector<std::vector<std::vector<std::size_t>>> runs;  ///< [run][block][column]
    using sums = Eigen::MatrixXf;
    using float_rows = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    std::vector<sums> h;  ///< [group][run], lower triangles
    std::string problem;
    compensated_weight result;

    std::size_t bytes() const {
        std::size_t all = 0;
        for (const auto& run : runs) all += width(run) * width(run) * sizeof(float);
        return all * rows.groups;
    }
    static std::size_t width(const std::vector<std::vector<std::size_t>>& run) {
        std::size_t n = 0;
        for (const auto& block : run) n += block.size();
        return n;
    }

    void begin() {
        for (std::size_t g = 0; g < rows.groups; ++g)
            for (const auto& run : runs)
                h.emplace_back(sums::Zero(static_cast<Eigen::Index>(width(run)), static_cast<Eigen::Index>(width(run))));
    }

    /// Adds x x^T over the output positions (places) of group g; inputs[column * places + p].
    void add_columns(std::size_t g, const float* inputs, std::size_t places) {
        float_rows part;
        for (std::size_t r = 0; r < runs.size(); ++r) {
            part.resize(static_cast<Eigen::Index>(width(runs[r])), static_cast<Eigen::Index>(places));
            float* to = part.data();
            for (const auto& block : runs[r])
                for (const std::size_t c : block) to = std::copy_n(inputs + c * places, places, to);
            h[g * runs.size() + r].template selfadjointView<Eigen::Lower>().rankUpdate(part);
        }
    }

    void add(const tensor& x, int opset) {
        if (x.type() != data_type::float32 || x.size() == 0) return;
        const float* from = x.as<float>().data();
        if (product_axes_of(*node)->windows) {
            const ops::window w =
                ops::check_conv(node_view(*node, opset), x.shape(), weight.shape(), nullptr, static_cast<std::int64_t>(rows.groups));
            const std::size_t places = static_cast<std::size_t>(ops::product(w.output)), channels = rows.columns / rows.taps;
            const std::size_t in_size = static_cast<std::size_t>(ops::product(w.input)),
                              pictures = static_cast<std::size_t>(x.dim(0)) * rows.groups;
            std::vector<float> columns(rows.columns * places);
            for (std::size_t i = 0; i < pictures; ++i) {
                ops::gather_columns(from + i * channels * in_size, static_cast<std::int64_t>(channels), w, 0.0f, columns.data());
                add_columns(i % rows.groups, columns.data(), places);
            }
            return;
        }
        const std::size_t places = x.size() / rows.columns;
        if (places * rows.columns != x.size()) return;
        const float_rows columns =
            Eigen::Map<const float_rows>(from, static_cast<Eigen::Index>(places), static_cast<Eigen::Index>(rows.columns)).transpose();
        add_columns(0, columns.data(), places);
    }

    /// Rounds each block by the diagonal of its matrix, as the objective of its searched scale. Frees the sums.
    void weigh() {
        const column_rounder rounder(*how, rows, weight);
        const std::span<const float> given = std::as_const(weight).as<float>();
        const std::vector<float> before(given.begin(), given.end());
        weight = make_tensor<float>(weight.shape(), before);  // a copy: the model shares its buffer
        const std::span<float> w = weight.as<float>();
        for (std::size_t g = 0; g < rows.groups; ++g)
            for (std::size_t r = 0; r < runs.size(); ++r) {
                const std::vector<std::size_t>& block = runs[r][0];
                const Eigen::VectorXf weights = h[g * runs.size() + r].diagonal();
                std::vector<float> values(rows.rows * block.size());
                for (std::size_t o = 0; o < rows.rows; ++o)
                    for (std::size_t i = 0; i < block.size(); ++i) values[o * block.size() + i] = w[rows.at(g, o, block[i])];
                rounder.round(g, block, values, weights.allFinite() ? weights.data() : nullptr);
                for (std::size_t o = 0; o < rows.rows; ++o)
                    for (std::size_t i = 0; i < block.size(); ++i) w[rows.at(g, o, block[i])] = values[o * block.size() + i];
            }
        h.clear();
        result.weight_sqnr = sqnr(before, applied(*how, weight).as<float>());
    }

    /// Searches the plan's scales again, with the diagonal as weights: each run is a column. Frees the sums.
    void weigh_plan() {
        std::vector<float> weights(weight.size());
        for (std::size_t g = 0; g < rows.groups; ++g)
            for (std::size_t c = 0; c < rows.columns; ++c) {
                const float w = h[g * rows.columns + c](0, 0);
                for (std::size_t o = 0; o < rows.rows; ++o) weights[rows.at(g, o, c)] = w;
            }
        h.clear();
        if (std::ranges::all_of(weights, [](float w) { return std::isfinite(w); })) searched = weighed_quantizer(*how, weight, weights);
        const std::span<const float> given = std::as_const(weight).as<float>();
        result.weight_sqnr = sqnr(given, applied(searched ? *searched : *how, weight).as<float>());
    }

    void finish() {
        switch (use) {
            case matrix_use::compensates: return round();
            case matrix_use::weighs_blocks: return weigh();
            case matrix_use::weighs_plan: return weigh_plan();
        }
    }

    /// Rounds the weights by equations (2) and (3). Frees the sums.
    void round() {
        const bool by_inputs = how->semantics.scale_objective == scale_objective::weighted;
        const column_rounder rounder(*how, rows, weight);
        const std::span<const float> given = std::as_const(weight).as<float>();
        const std::vector<float> before(given.begin(), given.end());
        weight = make_tensor<float>(weight.shape(), before);  // a copy: the model shares its buffer
        const std::span<float> w = weight.as<float>();
        double signal = 0, nearest = 0, compensated = 0;
        for (std::size_t g = 0; g < rows.groups; ++g)
            for (std::size_t r = 0; r < runs.size(); ++r) {
                const auto& run = runs[r];
                const auto n = static_cast<Eigen::Index>(width(run));
                sums& sum = h[g * runs.size() + r];
                const double_matrix full = double_matrix(sum.template cast<double>().template selfadjointView<Eigen::Lower>());
                sum.resize(0, 0);
                double_matrix part(static_cast<Eigen::Index>(rows.rows), n);
                std::vector<std::size_t> lengths, columns;
                for (const auto& block : run) lengths.push_back(block.size()), columns.insert(columns.end(), block.begin(), block.end());
                for (Eigen::Index c = 0; c < n; ++c)
                    for (std::size_t o = 0; o < rows.rows; ++o)
                        part(static_cast<Eigen::Index>(o), c) = static_cast<double>(w[rows.at(g, o, columns[static_cast<std::size_t>(c)])]);
                signal += output_error(part, full);
                double plain = 0, done = 0;
                const Eigen::VectorXf weights = full.diagonal().cast<float>();
                std::vector<std::size_t> first;
                for (std::size_t at = 0; const std::size_t l : lengths) first.push_back(at), at += l;
                const bool weighs = by_inputs && weights.allFinite();
                const bool changed = round_rows(
                    part, full, lengths,
                    [&](std::size_t b, std::span<float> values) {
                        rounder.round(g, run[b], values, weighs ? weights.data() + first[b] : nullptr);
                    },
                    plain, done);
                nearest += plain, compensated += done;
                if (!changed) continue;
                for (Eigen::Index c = 0; c < n; ++c)
                    for (std::size_t o = 0; o < rows.rows; ++o)
                        w[rows.at(g, o, columns[static_cast<std::size_t>(c)])] = static_cast<float>(part(static_cast<Eigen::Index>(o), c));
            }
        result.nearest = 10 * std::log10(signal / nearest);
        result.compensated = 10 * std::log10(signal / compensated);
        result.weight_sqnr = sqnr(before, applied(*how, weight).as<float>());
    }
};

/// Are matrices of a layer with this weight used so?
inline bool is_used(const quantizer& q, matrix_use use) {
    if (use == matrix_use::compensates) return true;
    if (q.semantics.scale_objective != scale_objective::weighted) return false;
    return use == matrix_use::weighs_blocks ? is_searched(q.semantics.scale_rule) && is_block_format(q.format)
                                            : searches_scales(q.format, q.semantics) && !q.scale.empty();
}

/// Prepares a node whose weight the plan narrows below 16 bits; `problem` says why it can't be compensated. nullopt for any other node.
inline std::optional<compensation> compensation_of(const model& m, int index, const precision_plan& plan, std::size_t longest,
                                                   matrix_use use) {
    const onnx::NodeProto& n = m.graph().node(index);
    if (kind_of(n) != layer_kind::compute || n.input_size() < 2 || m.is_constant(n.input(0)) == m.is_constant(n.input(1)))
        return std::nullopt;
    const int operand = m.is_constant(n.input(1)) ? 1 : 0;
    const std::string& weight = n.input(operand);
    const quantizer* q = plan.find({weight, n.name(), operand});
    if (q == nullptr || bits_per_value(q->format) >= 16 || !is_used(*q, use)) return std::nullopt;
    compensation c;
    c.use = use;
    c.node = &n, c.how = q;
    c.result.layer = n.name(), c.result.weight = weight;
    c.type = m.constant(weight).type();
    c.weight = ops::widened(m.constant(weight));
    if (c.weight.type() != data_type::float32) return std::nullopt;
    c.rows = window_rows_of(n, c.weight);
    c.problem = operand == 1 ? c.rows.refusal : "they are the first factor";
    if (m.uses(weight).size() != 1) c.problem = "other nodes read the same weights";
    if (!c.problem.empty()) return c;
    const auto blocks = blocks_of(c.rows, *q, c.weight.rank());
    if (blocks.empty()) c.problem = "its blocks do not run along the reduction axis";
    std::size_t width = 0;
    for (const auto& block : blocks) {
        if (c.runs.empty() || width + block.size() > longest || use != matrix_use::compensates) c.runs.emplace_back(), width = 0;
        c.runs.back().push_back(block);
        width += block.size();
    }
    return c;
}

/// Runs the samples, as many at once as `memory` holds of the layers' inputs, and adds up each layer's inputs in the order of the samples.
inline void add_up(const evaluator& run, const model& m, std::span<compensation*> layers, const execute::sample_set& data,
                   std::optional<int> batch_axis, execute::workers& pool, std::size_t memory,
                   const std::function<void(std::size_t)>& done) {
    std::map<std::string, std::vector<tensor>> kept;
    for (const compensation* c : layers) kept[c->node->input(0)];
    std::mutex lock;
    std::size_t at_once = 1;
    for (std::size_t first = 0; first < data.count;) {
        const std::size_t n = std::min(at_once, data.count - first);
        for (auto& [name, values] : kept) values.assign(n, {});
        named_tensors part;
        part.batch_axis = batch_axis;
        const std::vector<tensor> slice = data.slice(first, n);
        for (std::size_t i = 0; i < slice.size(); ++i) part[m.inputs()[i].name] = slice[i];
        std::size_t bytes = 0;
        run.run(part, {}, [&](const std::string& name, const tensor& value, std::size_t sample) {
            const auto found = kept.find(name);
            if (found == kept.end() || sample >= n) return;
            tensor own = ops::widened(value);
            if (own.type() == value.type()) {  // not converted: copied out of the thread's arena
                own = tensor(value.type(), value.shape());
                std::memcpy(own.bytes(), value.bytes(), value.size_bytes());
            }
            const std::lock_guard guard(lock);
            bytes += value.size_bytes();
            found->second[sample] = std::move(own);
        });
        pool.for_each(layers.size(), [&](std::size_t i, execute::arena&) {
            for (const tensor& x : kept.at(layers[i]->node->input(0))) layers[i]->add(x, m.opset(""));
        });
        if (!data.ragged) at_once = std::clamp<std::size_t>(memory / std::max<std::size_t>(bytes / n, 1), 1, 64);
        first += n;
        done(first);
    }
}

/// Runs the samples, and finishes every layer of the plan that has such a use.
inline std::vector<compensation> finished_layers(const model& m, const precision_plan& plan, const named_tensors& samples,
                                                 const compensate_options& options, const progress& report, matrix_use use) {
    std::vector<compensation> all;
    for (int i = 0; i < m.graph().node_size(); ++i)
        if (auto c = compensation_of(m, i, plan, options.columns, use)) all.push_back(std::move(*c));
    std::vector<compensation*> able;
    for (compensation& c : all)
        if (c.problem.empty()) able.push_back(&c);
    if (able.empty()) return all;

    execute::sample_set data = execute::make_samples(m, samples);
    if (const auto cut = execute::runner(m, 1, {}, execute::large_constants::late).decide(data, 0); !cut.one_by_one) {
        data.axes.assign(data.axes.size(), -1);  // its rows are no samples: they run together
        data.count = 1;
    }
    const evaluator run(m, {.threads = options.threads, .keep_outputs = false, .limits = options.limits});
    execute::workers pool(options.threads, std::make_shared<memory_budget>(options.limits.memory));
    for (std::size_t from = 0; from < able.size();) {
        std::size_t to = from, held = 0;
        while (to < able.size() && (to == from || held + able[to]->bytes() <= options.memory)) held += able[to++]->bytes();
        const std::span<compensation*> now(able.data() + from, to - from);
        for (compensation* c : now) c->begin();
        add_up(run, m, now, data, samples.batch_axis, pool, options.memory / 2, [&](std::size_t done) {
            if (report) report((from * data.count + done * now.size()) / able.size(), data.count);
        });
        pool.for_each(now.size(), [&](std::size_t i, execute::arena&) { now[i]->finish(); });
        from = to;
    }
    return all;
}

/// Rounds layers of a plan and puts their weights into the model.
inline std::vector<compensated_weight> round_layers(model& m, const precision_plan& plan, const named_tensors& samples,
                                                    const compensate_options& options, const progress& report, matrix_use use) {
    std::vector<compensation> all = finished_layers(m, plan, samples, options, report, use);
    if (all.empty()) return {};
    std::map<std::string, const compensation*> changed;
    std::vector<compensated_weight> results;
    for (compensation& c : all) {
        c.result.left = c.problem;
        if (c.problem.empty()) changed[c.result.weight] = &c;
        results.push_back(c.result);
    }
    for (auto& initializer : *m.graph().mutable_initializer())
        if (const auto found = changed.find(initializer.name()); found != changed.end())
            to_proto(ops::narrowed(found->second->weight, found->second->type), found->first, initializer);
    m.reindex();
    return results;
}

/// Is there a layer whose matrices are used so?
inline bool has_use(const model& m, const precision_plan& plan, matrix_use use) {
    for (int i = 0; i < m.graph().node_size(); ++i)
        if (compensation_of(m, i, plan, 1, use)) return true;
    return false;
}

/// Gives a layer's int32 bias the scales that follow from the weight's. A scale with which the bias would leave 32 bits stays as it was.
inline void scale_bias(const model& m, precision_plan& plan, const onnx::NodeProto& n, const quantizer& before, quantizer& now) {
    if (n.input_size() < 3 || !m.is_constant(n.input(2)) || now.block_size > 0) return;
    quantizer* bias = plan.entry_of({n.input(2), n.name(), 2});
    if (bias == nullptr || bias->format != qk::format(int32)) return;
    const tensor value = ops::widened(m.constant(n.input(2)));
    const auto grown = [&](std::size_t i, std::size_t c) { return bias->scale[i] * (now.scale[c] / before.scale[c]); };
    const auto each = [&](const auto& f) {
        for (std::size_t i = 0; i < bias->scale.size(); ++i) f(i, i % now.scale.size());
    };
    std::vector<bool> kept(now.scale.size());
    for (std::size_t i = 0; i < value.size(); ++i) {
        const std::size_t c = i % now.scale.size(), s = bias->scale.size() == 1 ? 0 : i;
        const double scale = static_cast<double>(grown(s, c));
        const double code = std::abs(static_cast<double>(value.as<float>()[i])) / scale;
        if (!(code < largest_bias_code) || scale < static_cast<double>(std::numeric_limits<float>::min())) kept[c] = true;
    }
    for (std::size_t c = 0; c < kept.size(); ++c) {
        if (!kept[c]) continue;
        now.scale[c] = before.scale[c];
        if (now.zero_point.size() == kept.size()) now.zero_point[c] = before.zero_point[c];
    }
    each([&](std::size_t i, std::size_t c) { bias->scale[i] = grown(i, c); });
}

}  // namespace detail

std::vector<compensated_weight> compensate_rounding(model& m, const precision_plan& plan, const named_tensors& samples,
                                                    const compensate_options& options, const progress& report) {
    return detail::round_layers(m, plan, samples, options, report, detail::matrix_use::compensates);
}

bool weighs_scales(const model& m, const precision_plan& plan) { return detail::has_use(m, plan, detail::matrix_use::weighs_blocks); }
std::vector<compensated_weight> weigh_scales(model& m, const precision_plan& plan, const named_tensors& samples,
                                             const compensate_options& options, const progress& report) {
    std::vector<compensated_weight> done = detail::round_layers(m, plan, samples, options, report, detail::matrix_use::weighs_blocks);
    for (compensated_weight& c : done) c.only_weighed = true;
    return done;
}

bool weighs_plan_scales(const model& m, const precision_plan& plan) { return detail::has_use(m, plan, detail::matrix_use::weighs_plan); }
std::vector<compensated_weight> weigh_plan_scales(const model& m, precision_plan& plan, const named_tensors& samples,
                                                  const compensate_options& options, const progress& report) {
    std::vector<detail::compensation> all = detail::finished_layers(m, plan, samples, options, report, detail::matrix_use::weighs_plan);
    std::vector<compensated_weight> results;
    for (detail::compensation& c : all) {
        if (c.searched) {
            detail::scale_bias(m, plan, *c.node, quantizer(*c.how), *c.searched);
            *plan.entry_of({c.result.weight, c.result.layer, c.node->input(0) == c.result.weight ? 0 : 1}) = *c.searched;
        }
        c.result.left = c.problem, c.result.only_weighed = true;
        results.push_back(c.result);
    }
    return results;
}

void add_to(quantize_report& report, const std::vector<compensated_weight>& done) {
    for (const compensated_weight& c : done) {
        if (!c.left.empty()) {
            const char* instead = c.only_weighed ? "its scales are searched without weights: " : "its weights are rounded to nearest: ";
            report.notes.push_back({plan_note::kind::unrealised, "layer '" + c.layer + "'", instead + c.left, "weight rounding"});
            continue;
        }
        for (edge_report& e : report.edges)
            if (e.edge.tensor == c.weight && e.edge.consumer == c.layer) {
                e.sqnr = c.weight_sqnr;
                if (c.only_weighed) {
                    e.why += "; its scales are searched, weighted by the mean squares of what the layer reads";
                    continue;
                }
                e.why +=
                    formatted("; rounded with compensation: the layer's output at %.1f dB, to nearest %.1f dB", c.compensated, c.nearest);
            }
    }
}

}  // namespace qk::graph
