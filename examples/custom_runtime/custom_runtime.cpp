// SPDX-License-Identifier: Apache-2.0
// A runtime of your own: a decoder for checkpoints of Qwen's and Llama's kind, dense ones. Weights stay packed as the file has them,
// products read them so (qk/product.hpp), and keys and values are packed in a format of your choice.
//
//   custom_runtime model.safetensors --prompt 1,2,3 --tokens 20 [--cache fp8_e4m3fn] [--floats | --integers] [--logits FILE]
//
// --floats decodes every weight to float32 first and changes nothing else: same order of sums, same bits, more bytes. --integers rounds
// what is multiplied to int8 by block where weights are whole numbers of a unit, as llama.cpp does: faster, and not the same. --logits
// writes the logits of every position that was computed, as float32. make_checkpoint.py writes checkpoints of random weights.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "qk/checkpoint.hpp"
#include "qk/dispatch.hpp"
#include "qk/formats/parse.hpp"

namespace {

using bytes = std::span<const std::byte>;

[[noreturn]] void fail(const std::string& sentence) { throw std::runtime_error(sentence); }

/// Packed weights, where they lie in the file, or in memory of their own.
struct matrix {
    qk::format format;
    qk::packed_weights w;
    std::vector<std::byte> codes, scale_codes;
    std::vector<float> scale;
    std::vector<std::int64_t> zero;
    float tensor = 1;
    qk::product_sums sums = qk::product_sums::floats;

    matrix() = default;
    matrix(matrix&&) = default;  // memory stays where it is when a vector is moved
    matrix& operator=(matrix&&) = default;
    std::size_t size() const {
        return w.planes.elements.size() + w.planes.scales.size() + (scale.size() + w.planes.tensor.size() / 4) * sizeof(float);
    }
    /// Decodes row r to y.
    void row(std::size_t r, std::span<float> y) const {
        const qk::packed_rows one{w, 1, w.columns, r};
        const float weight = 1;  // one row, times 1
        qk::dispatch::weighted_rows(format, one, {std::span(&weight, 1)}, {y});
    }
    /// y = W x for vectors that lie one after the other.
    void multiply(std::span<const float> x, std::span<float> y, qk::product_options o = {}) const {
        o.sums = sums;
        qk::dispatch::product(format, w, {x, x.size() / w.columns}, {y}, o);
    }
};

/// Puts the codes and scales of a quantized matrix where qk's formats have them; what is there already is not moved.
void take_quantized(const qk::checkpoint::checkpoint& c, const qk::checkpoint::weight& w, matrix& m) {
    const auto part = [&](int number) { return number < 0 ? bytes() : bytes(c.tensors[static_cast<std::size_t>(number)].data); };
    qk::matrix_planes in{part(w.codes), part(w.scales), part(w.zeros), 1, part(w.group_of)};
    if (w.global >= 0) std::memcpy(&in.global, part(w.global).data(), sizeof(float));
    const qk::layout& from = w.how;
    qk::layout to = from;
    to.order = qk::code_order::rows, to.row_bits = 8, to.scales = qk::scale_order::rows;
    const bool few_rows = from.group_rows > 1 && (from.scale == qk::scale_type::e8m0 || from.scale == qk::scale_type::e4m3);
    if (w.stack != 1 || w.transposed || from.zero != qk::zero_type::none || !in.group_of.empty() || from.codes == qk::element::ggml ||
        few_rows)
        fail(w.name + ": this example has no product for weights like " + w.format + "; qk convert writes others");
    const qk::plane_sizes n = qk::sizes_of(to, w.matrix);
    if (!(from == to)) {
        std::vector<std::uint8_t> scratch(w.matrix.columns);
        m.codes.resize(n.codes), m.scale_codes.resize(n.scales);
        float global = 1;
        if (!qk::repack(from, w.matrix, in, to, {m.codes, m.scale_codes, {}, &global}, scratch).done) fail(w.name + ": cannot be moved");
        in.codes = m.codes, in.scales = m.scale_codes;
    }
    const std::string element = from.codes == qk::element::e2m1   ? "fp4_e2m1"
                                : from.codes == qk::element::e2m3 ? "fp6_e2m3"
                                : from.codes == qk::element::e3m2 ? "fp6_e3m2"
                                : from.codes == qk::element::e4m3 ? "fp8_e4m3fn"
                                : from.codes == qk::element::e5m2
                                    ? "fp8_e5m2"
                                    : (from.codes == qk::element::unsigned_integer ? "uint" : "int") + std::to_string(from.bits);
    const std::string group = std::to_string(from.group_columns);
    m.w.planes = {in.codes, in.scales, {}, {}};
    if (from.scale == qk::scale_type::e8m0) {
        m.format = *qk::parse_format("mx:element=" + element + ",block=" + group);
    } else if (from.scale == qk::scale_type::e4m3) {
        m.format = *qk::parse_format("nvfp:block=" + group + ",element=" + element + ",scale=fp8_e4m3fn,tensor=0");
        m.w.parameters = qk::affine{from.global == qk::global_type::divides ? 1 / in.global : in.global};
    } else {
        m.format = *qk::parse_format(element);
        const std::size_t groups = qk::groups_of(from, w.matrix), together = static_cast<std::size_t>(from.group_rows);
        for (std::size_t r = 0; r < w.matrix.rows; ++r)
            for (std::size_t g = 0; g < groups; ++g)
                m.scale.push_back(
                    from.scale == qk::scale_type::none
                        ? 1.0f
                        : qk::scale_value(from.scale, qk::scale_bits(to, w.matrix, in.scales, together == 0 ? 0 : r / together, g)));
        if (from.offset != 0) m.zero.assign(m.scale.size(), from.offset);
        m.w.planes.scales = {};
        m.w.parameters = qk::per_block{m.scale,
                                       m.zero,
                                       {w.matrix.rows, w.matrix.columns, 1},
                                       groups == 1 ? w.matrix.columns : static_cast<std::size_t>(from.group_columns)};
    }
}

enum class weights_as { packed, floats, integers };

matrix load(const qk::checkpoint::checkpoint& c, const std::string& name, weights_as how) {
    const qk::checkpoint::weight* w = c.find_weight(name);
    if (w == nullptr) fail(c.path.string() + ": there is no " + name);
    if (w->problem) fail(w->problem->sentence);
    matrix m;
    m.w.rows = static_cast<std::size_t>(w->shape.at(0)), m.w.columns = w->shape.size() > 1 ? static_cast<std::size_t>(w->shape[1]) : 1;
    if (w->quantized) {
        take_quantized(c, *w, m);
    } else {
        m.format = *qk::parse_format(w->format == "f16" ? "fp16" : w->format == "f32" ? "fp32" : "bf16");
        m.w.planes.elements = c.tensors[static_cast<std::size_t>(w->codes)].data;
    }
    if (how == weights_as::integers && qk::takes_integers(m.format)) m.sums = qk::product_sums::integers;
    if (how != weights_as::floats) return m;
    matrix f;
    f.format = qk::fp32, f.w.rows = m.w.rows, f.w.columns = m.w.columns;
    f.codes.resize(m.w.rows * m.w.columns * sizeof(float));
    for (std::size_t r = 0; r < m.w.rows; ++r) m.row(r, std::span(reinterpret_cast<float*>(f.codes.data()) + r * m.w.columns, m.w.columns));
    f.w.planes.elements = f.codes;
    return f;
}
std::vector<float> load_vector(const qk::checkpoint::checkpoint& c, const std::string& name) {
    const qk::checkpoint::weight* w = c.find_weight(name);
    return w == nullptr ? std::vector<float>() : c.decode(*w);
}

/// Keys or values: a packed matrix with a row for each token.
class cache {
  public:
    cache(const qk::format& f, std::size_t tokens, std::size_t columns)
        : format_(f), layout_(qk::layout_of(f, qk::along_axis{tokens, columns, 1})) {
        const qk::packed_layout row = qk::layout_of(f, qk::along_axis{1, columns, 1});
        row_ = row;
        if (layout_.elements.bytes() != tokens * row.elements.bytes() || layout_.scales.bytes() != tokens * row.scales.bytes() ||
            layout_.shifts.count != 0 || layout_.tensor.count != 0 || qk::is_integer_format(f))
            fail("--cache: a float, or blocks whose scales are bytes");
        memory_.resize(layout_.bytes());
        w_ = {tokens, columns, qk::planes_of(layout_, bytes(memory_)), qk::affine{1}};
        if (qk::is_block_format(f)) w_.parameters = {};
    }
    void put(std::size_t token, std::span<const float> x) {
        const qk::planes all = qk::planes_of(layout_, std::span(memory_));
        const std::size_t e = row_.elements.bytes(), s = row_.scales.bytes();
        const qk::planes one{all.elements.subspan(token * e, e), all.scales.subspan(token * s, s), {}, {}};
        if (qk::dispatch::encode(format_, x, one) != qk::encode_status::done) fail("--cache: cannot be encoded");
    }
    /// Returns the first `tokens` rows of one head.
    qk::packed_rows of_head(std::size_t tokens, std::size_t size, std::size_t head) const { return {w_, tokens, size, 0, 1, head * size}; }
    const qk::format& format() const { return format_; }

  private:
    qk::format format_;
    qk::packed_layout layout_, row_;
    std::vector<std::byte> memory_;
    qk::packed_weights w_;
};

/// Reads the config and refuses what would be computed in another way.
nlohmann::json read_config(const std::filesystem::path& path, std::size_t tokens) {
    std::ifstream file(path);
    const nlohmann::json j = nlohmann::json::parse(file, nullptr, false);
    if (!file || !j.is_object()) fail(path.string() + ": is missing, or not JSON");
    const auto refuse = [&](const std::string& what) { fail(path.string() + ": " + what + " is not known here"); };
    const std::string model = j.value("model_type", ""), act = j.value("hidden_act", "silu");
    if (model != "qwen3" && model != "qwen2" && model != "llama" && model != "mistral") refuse("model_type \"" + model + "\"");
    if (act != "silu" && act != "gelu_pytorch_tanh") refuse("hidden_act \"" + act + "\"");
    if (j.value("partial_rotary_factor", 1.0) != 1.0) refuse("partial_rotary_factor");
    const bool may_slide = j.value("use_sliding_window", model == "mistral");
    if (may_slide && j.contains("sliding_window") && j["sliding_window"].is_number() && j["sliding_window"].get<std::size_t>() < tokens)
        refuse("a sliding_window below " + std::to_string(tokens) + " tokens");
    for (const char* key : {"num_attention_heads", "hidden_size", "num_hidden_layers", "rms_norm_eps"})
        if (!j.contains(key) || !j[key].is_number()) fail(path.string() + ": there is no number " + key);
    return j;
}

struct layer {
    std::vector<float> norm_in, norm_out, norm_q, norm_k, bias_q, bias_k, bias_v, bias_o, bias_gate, bias_up, bias_down;
    matrix q, k, v, o, gate, up, down;
};

class decoder {
  public:
    decoder(const qk::checkpoint::checkpoint& c, const qk::format& cache_format, std::size_t tokens, weights_as how) {
        const nlohmann::json j = read_config(c.path.parent_path() / "config.json", tokens);
        const auto number = [&](const char* key) { return j.at(key).get<std::size_t>(); };
        heads_ = number("num_attention_heads"), kv_heads_ = j.value("num_key_value_heads", heads_), width_ = number("hidden_size");
        head_ = j.contains("head_dim") && !j["head_dim"].is_null() ? number("head_dim") : width_ / heads_;
        epsilon_ = j.at("rms_norm_eps").get<float>();
        activation_ = j.value("hidden_act", "silu") == "silu" ? qk::activation::silu : qk::activation::gelu_tanh;
        set_frequencies(j);
        embedding_ = load(c, "model.embed_tokens.weight", how);
        tied_ = c.find_weight("lm_head.weight") == nullptr;
        if (!tied_) head_of_model_ = load(c, "lm_head.weight", how);
        norm_ = load_vector(c, "model.norm.weight");
        for (std::size_t i = 0; i < number("num_hidden_layers"); ++i) {
            const std::string at = "model.layers." + std::to_string(i) + ".", self = at + "self_attn.", mlp = at + "mlp.";
            const auto w = [&](const std::string& name) { return load(c, name + ".weight", how); };
            layers_.push_back({load_vector(c, at + "input_layernorm.weight"), load_vector(c, at + "post_attention_layernorm.weight"),
                               load_vector(c, self + "q_norm.weight"), load_vector(c, self + "k_norm.weight"),
                               load_vector(c, self + "q_proj.bias"), load_vector(c, self + "k_proj.bias"),
                               load_vector(c, self + "v_proj.bias"), load_vector(c, self + "o_proj.bias"),
                               load_vector(c, mlp + "gate_proj.bias"), load_vector(c, mlp + "up_proj.bias"),
                               load_vector(c, mlp + "down_proj.bias"), w(self + "q_proj"), w(self + "k_proj"), w(self + "v_proj"),
                               w(self + "o_proj"), w(mlp + "gate_proj"), w(mlp + "up_proj"), w(mlp + "down_proj")});
            keys_.emplace_back(cache_format, tokens, kv_heads_ * head_);
            values_.emplace_back(cache_format, tokens, kv_heads_ * head_);
        }
    }
    std::size_t words() const { return embedding_.w.rows; }
    /// Bytes of weights that one token reads.
    std::size_t bytes_a_token() const {
        std::size_t n = tied_ ? embedding_.size() : head_of_model_.size();
        for (const layer& l : layers_)
            for (const matrix* m : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down}) n += m->size();
        return n;
    }
    /// Returns the logits of each token, which stand at positions `first`, first + 1 ...
    std::vector<float> run(std::span<const std::size_t> tokens, std::size_t first) {
        const std::size_t n = tokens.size(), q_width = heads_ * head_, kv_width = kv_heads_ * head_;
        std::vector<float> x(n * width_), normed(n * width_), q(n * q_width), k(n * kv_width), v(n * kv_width), context(n * q_width), gate,
            up;
        for (std::size_t i = 0; i < n; ++i) embedding_.row(tokens[i], std::span(x).subspan(i * width_, width_));
        for (std::size_t i = 0; i < layers_.size(); ++i) {
            const layer& l = layers_[i];
            normalize(x, l.norm_in, normed);
            l.q.multiply(normed, q, {.bias = l.bias_q});
            l.k.multiply(normed, k, {.bias = l.bias_k});
            l.v.multiply(normed, v, {.bias = l.bias_v});
            turn(q, l.norm_q, heads_, first), turn(k, l.norm_k, kv_heads_, first);
            for (std::size_t t = 0; t < n; ++t) {
                keys_[i].put(first + t, std::span(k).subspan(t * kv_width, kv_width));
                values_[i].put(first + t, std::span(v).subspan(t * kv_width, kv_width));
                attend(i, first + t + 1, std::span(q).subspan(t * q_width, q_width), std::span(context).subspan(t * q_width, q_width));
            }
            l.o.multiply(context, x, {.bias = l.bias_o, .plus = x});
            normalize(x, l.norm_out, normed);
            gate.resize(n * l.gate.w.rows), up.resize(gate.size());
            l.up.multiply(normed, up, {.bias = l.bias_up});
            l.gate.multiply(normed, gate, {.bias = l.bias_gate, .act = activation_, .times = up});
            l.down.multiply(gate, x, {.bias = l.bias_down, .plus = x});
        }
        normalize(x, norm_, normed);
        std::vector<float> logits(n * words());
        (tied_ ? embedding_ : head_of_model_).multiply(normed, logits);
        return logits;
    }

  private:
    /// Reads what the config says of positions.
    void set_frequencies(const nlohmann::json& j) {
        const auto object = [&](const char* key) { return j.contains(key) && j[key].is_object() ? j[key] : nlohmann::json::object(); };
        nlohmann::json rope = object("rope_scaling");
        rope.update(object("rope_parameters"));
        const std::string type = rope.value("rope_type", rope.value("type", "default"));
        const double theta = rope.value("rope_theta", j.value("rope_theta", 10000.0)), factor = rope.value("factor", 1.0);
        if (type != "default" && type != "linear" && type != "llama3") fail("config.json: rope_type " + type + " is not known here");
        for (std::size_t k = 0; k < head_ / 2; ++k) {
            double f = std::pow(theta, -2.0 * static_cast<double>(k) / static_cast<double>(head_));
            if (type == "llama3") {  // slow turns are slowed down further, those in between in part
                const double low = rope.at("low_freq_factor"), high = rope.at("high_freq_factor"),
                             turns = rope.at("original_max_position_embeddings").get<double>() * f / 6.283185307179586,
                             part = std::clamp((turns - low) / (high - low), 0.0, 1.0);
                f = (1 - part) * f / factor + part * f;
            } else {
                f /= factor;
            }
            frequency_.push_back(f);
        }
    }
    /// Root-mean-square norm of vectors as long as `weight`.
    void normalize(std::span<const float> x, std::span<const float> weight, std::span<float> y) const {
        for (std::size_t i = 0; i < x.size(); i += weight.size()) {
            float sum = 0;
            for (std::size_t k = 0; k < weight.size(); ++k) sum += x[i + k] * x[i + k];
            const float by = 1 / std::sqrt(sum / static_cast<float>(weight.size()) + epsilon_);
            for (std::size_t k = 0; k < weight.size(); ++k) y[i + k] = x[i + k] * by * weight[k];
        }
    }
    /// Norms of heads, if the model has them, and rotary positions.
    void turn(std::vector<float>& x, std::span<const float> norm, std::size_t heads, std::size_t first) const {
        if (!norm.empty()) normalize(x, norm, x);
        for (std::size_t h = 0; h < x.size() / head_; ++h) {
            float* v = x.data() + h * head_;
            const auto position = static_cast<double>(first + h / heads);
            for (std::size_t k = 0; k < head_ / 2; ++k) {
                const double angle = position * frequency_[k];
                const auto c = static_cast<float>(std::cos(angle)), s = static_cast<float>(std::sin(angle));
                const float a = v[k], b = v[k + head_ / 2];
                v[k] = a * c - b * s, v[k + head_ / 2] = b * c + a * s;
            }
        }
    }
    /// Queries of one token over `tokens` of the cache: those that share a head go together.
    void attend(std::size_t i, std::size_t tokens, std::span<const float> q, std::span<float> context) {
        const std::size_t shared = heads_ / kv_heads_;
        std::vector<float> scores(shared * tokens);
        for (std::size_t h = 0; h < kv_heads_; ++h) {
            const std::size_t at = h * shared * head_;
            qk::dispatch::dot_rows(keys_[i].format(), keys_[i].of_head(tokens, head_, h), {q.subspan(at, shared * head_), shared}, {scores},
                                   {.scale = 1 / std::sqrt(static_cast<float>(head_))});
            for (std::size_t m = 0; m < shared; ++m) {
                const std::span<float> s = std::span(scores).subspan(m * tokens, tokens);
                const float most = *std::max_element(s.begin(), s.end());
                for (float& p : s) p = std::exp(p - most);
                const float sum = std::accumulate(s.begin(), s.end(), 0.0f);
                for (float& p : s) p /= sum;
            }
            qk::dispatch::weighted_rows(values_[i].format(), values_[i].of_head(tokens, head_, h), {scores, shared},
                                        {context.subspan(at, shared * head_)});
        }
    }

    std::size_t heads_ = 0, kv_heads_ = 0, head_ = 0, width_ = 0;
    float epsilon_ = 0;
    qk::activation activation_ = qk::activation::silu;
    std::vector<double> frequency_;  ///< radians a position, of each pair of a head
    bool tied_ = false;
    matrix embedding_, head_of_model_;
    std::vector<float> norm_;
    std::vector<layer> layers_;
    std::vector<cache> keys_, values_;
};

std::size_t whole_number(const char* option, const std::string& text) {
    std::size_t n = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (problem != std::errc() || end != text.data() + text.size() || n > (1u << 24))
        fail(std::string(option) + ": \"" + text + "\" is no number");
    return n;
}

int run(int argc, char** argv) {
    std::string file, cache_format = "bf16", logits_file, prompt = "1";
    std::size_t count = 16;
    weights_as how = weights_as::packed;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        const auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : (fail(word + " takes a value"), std::string()); };
        const auto known = [&] { return word.starts_with("--") ? fail("there is no option " + word) : void(); };
        if (word == "--prompt") prompt = value();
        else if (word == "--tokens") count = whole_number("--tokens", value());
        else if (word == "--cache") cache_format = value();
        else if (word == "--logits") logits_file = value();
        else if (word == "--floats") how = weights_as::floats;
        else if (word == "--integers") how = weights_as::integers;
        else known(), file = word;
    }
    if (file.empty())
        fail("usage: custom_runtime CHECKPOINT [--prompt 1,2,3] [--tokens N] [--cache FORMAT] [--floats | --integers] [--logits FILE]");
    std::vector<std::size_t> tokens;
    for (std::size_t at = 0, end = 0; end != prompt.size(); at = end + 1) {
        end = std::min(prompt.find(',', at), prompt.size());
        tokens.push_back(whole_number("--prompt", prompt.substr(at, end - at)));
    }
    const auto f = qk::parse_format(cache_format);
    if (!f) fail("--cache " + cache_format + ": " + std::string(f.error.view()));
    const auto c = qk::checkpoint::open(file);
    decoder model(c, *f, tokens.size() + count, how);
    for (const std::size_t t : tokens)
        if (t >= model.words()) fail("--prompt: token " + std::to_string(t) + " of " + std::to_string(model.words()));
    std::ofstream logits_out;
    if (!logits_file.empty()) logits_out.open(logits_file, std::ios::binary);
    double seconds = 0;
    std::vector<std::size_t> given = tokens;  // the prompt at once, then one token after the other
    for (std::size_t made = 0; made < count; ++made) {
        const auto start = std::chrono::steady_clock::now();
        const std::vector<float> logits = model.run(given, tokens.size() - given.size());
        if (made != 0) seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        if (logits_out)
            logits_out.write(reinterpret_cast<const char*>(logits.data()), static_cast<std::streamsize>(logits.size() * sizeof(float)));
        const auto last = std::span(logits).last(model.words());
        given = {static_cast<std::size_t>(std::max_element(last.begin(), last.end()) - last.begin())};
        tokens.push_back(given[0]);
        std::printf("%zu%c", given[0], made + 1 == count ? '\n' : ' ');
    }
    if (count > 1) {
        const double rate = static_cast<double>(count - 1) / seconds, read = static_cast<double>(model.bytes_a_token());
        std::fprintf(stderr, "%.2f tokens/s, %.1f MB of weights a token, %.2f GB/s (%s)\n", rate, read / 1e6, rate * read / 1e9,
                     qk::dispatch::architecture());
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(argc, argv);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "custom_runtime: %s\n", e.what());
        return 1;
    }
}
