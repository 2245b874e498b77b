// SPDX-License-Identifier: Apache-2.0
// A runtime of your own: a decoder for checkpoints of Qwen's, Llama's and Mistral's kind, and of GPT-OSS with its experts. Weights stay
// packed as the file has them (weights.hpp), products read them so (qk/product.hpp), and keys and values are packed in a format of your
// choice.
//
//   custom_runtime model.safetensors --prompt 1,2,3 --tokens 20 [--cache fp8_e4m3fn] [--floats | --integers] [--threads N]
//                  [--resident] [--logits FILE]
//
// --floats decodes every weight to float32 first and changes nothing else: same order of sums, same bits, more bytes. --integers rounds
// what is multiplied to int8 by block where weights are whole numbers of a unit, as llama.cpp does: faster, and not the same. Threads
// change no bit. --logits writes the logits of every position that was computed, as float32. make_checkpoint.py writes checkpoints of
// random weights.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "weights.hpp"

namespace {

using namespace custom_runtime;

/// Reads the config and refuses what would be computed in another way.
nlohmann::json read_config(const std::filesystem::path& path) {
    std::ifstream file(path);
    const nlohmann::json j = nlohmann::json::parse(file, nullptr, false);
    if (!file || !j.is_object()) fail(path.string() + ": is missing, or not JSON");
    const auto refuse = [&](const std::string& what) { fail(path.string() + ": " + what + " is not known here"); };
    const std::string model = j.value("model_type", ""), act = j.value("hidden_act", "silu");
    if (model != "qwen3" && model != "qwen2" && model != "llama" && model != "mistral" && model != "gpt_oss")
        refuse("model_type \"" + model + "\"");
    if (act != "silu" && act != "gelu_pytorch_tanh") refuse("hidden_act \"" + act + "\"");
    if (j.value("partial_rotary_factor", 1.0) != 1.0) refuse("partial_rotary_factor");
    if (j.value("use_sliding_window", false) && !j.contains("layer_types")) refuse("use_sliding_window without layer_types");
    for (const char* key : {"num_attention_heads", "hidden_size", "num_hidden_layers", "rms_norm_eps"})
        if (!j.contains(key) || !j[key].is_number()) fail(path.string() + ": there is no number " + key);
    return j;
}

struct layer {
    std::vector<float> norm_in, norm_out, norm_q, norm_k, sinks;
    matrix q, k, v, o, gate, up, down, router;  // experts: gate has the rows of up between its own
    std::size_t window;                         // tokens that a query sees, its own among them
    cache keys, values;
};

class decoder {
  public:
    decoder(const qk::checkpoint::checkpoint& c, const qk::format& cache_format, std::size_t tokens, weights_as how, std::size_t threads)
        : threads_(threads) {
        const nlohmann::json j = read_config(c.path.parent_path() / "config.json");
        const auto number = [&](const char* key) { return j.at(key).get<std::size_t>(); };
        const bool oss = j["model_type"] == "gpt_oss";
        heads_ = number("num_attention_heads"), kv_heads_ = j.value("num_key_value_heads", heads_), width_ = number("hidden_size");
        head_ = j.contains("head_dim") && !j["head_dim"].is_null() ? number("head_dim") : width_ / heads_;
        epsilon_ = j.at("rms_norm_eps").get<float>();
        activation_ = j.value("hidden_act", "silu") == "silu" ? qk::activation::silu : qk::activation::gelu_tanh;
        if (oss) chosen_ = number("num_experts_per_tok"), limit_ = j.value("swiglu_limit", 7.0f);
        set_frequencies(j);
        embedding_ = load(c, "model.embed_tokens.weight", how);
        tied_ = c.find_weight("lm_head.weight") == nullptr;
        if (!tied_) head_of_model_ = load(c, "lm_head.weight", how);
        norm_ = load_vector(c, "model.norm.weight");
        const bool may_slide = j.contains("sliding_window") && j["sliding_window"].is_number();
        for (std::size_t i = 0; i < number("num_hidden_layers"); ++i) {
            const std::string at = "model.layers." + std::to_string(i) + ".", self = at + "self_attn.", mlp = at + "mlp.";
            const auto w = [&](const std::string& name) { return load(c, name + ".weight", how, name + ".bias"); };
            const auto experts = [&](const std::string& name) {
                return load(c, mlp + "experts." + name, how, mlp + "experts." + name + "_bias");
            };
            const auto vector = [&](const char* name) { return load_vector(c, at + name); };
            const bool slides = j.contains("layer_types") ? j["layer_types"].at(i) == "sliding_attention" : j["model_type"] == "mistral";
            layers_.push_back({vector("input_layernorm.weight"), vector("post_attention_layernorm.weight"),
                               vector("self_attn.q_norm.weight"), vector("self_attn.k_norm.weight"), vector("self_attn.sinks"),
                               w(self + "q_proj"), w(self + "k_proj"), w(self + "v_proj"), w(self + "o_proj"),
                               oss ? experts("gate_up_proj") : w(mlp + "gate_proj"), oss ? matrix() : w(mlp + "up_proj"),
                               oss ? experts("down_proj") : w(mlp + "down_proj"), oss ? w(mlp + "router") : matrix(),
                               slides && may_slide ? number("sliding_window") : std::numeric_limits<std::size_t>::max(),
                               cache(cache_format, tokens, kv_heads_ * head_), cache(cache_format, tokens, kv_heads_ * head_)});
        }
    }
    std::size_t words() const { return embedding_.w.rows; }
    /// Bytes of weights that one token reads.
    std::size_t bytes_a_token() const {
        std::size_t n = tied_ ? embedding_.size() : head_of_model_.size();
        for (const layer& l : layers_) {
            for (const matrix* m : {&l.q, &l.k, &l.v, &l.o, &l.router, &l.up}) n += m->size();
            for (const matrix* m : {&l.gate, &l.down}) n += chosen_ == 0 ? m->size() : m->size() * chosen_ / l.router.w.rows;
        }
        return n;
    }
    /// Returns the logits of each token, which stand at positions `first`, first + 1 ...
    std::vector<float> run(std::span<const std::size_t> tokens, std::size_t first) {
        const std::size_t n = tokens.size(), q_width = heads_ * head_, kv_width = kv_heads_ * head_;
        std::vector<float> x(n * width_), normed(n * width_), q(n * q_width), k(n * kv_width), v(n * kv_width), context(n * q_width), gate,
            up;
        set_turns(first, n);
        for (std::size_t i = 0; i < n; ++i) embedding_.row(tokens[i], std::span(x).subspan(i * width_, width_));
        for (layer& l : layers_) {
            normalize(x, l.norm_in, normed);
            l.q.multiply(threads_, normed, q);
            l.k.multiply(threads_, normed, k);
            l.v.multiply(threads_, normed, v);
            turn(q, l.norm_q, heads_), turn(k, l.norm_k, kv_heads_);
            for (std::size_t t = 0; t < n; ++t) {
                l.keys.put(first + t, std::span(k).subspan(t * kv_width, kv_width));
                l.values.put(first + t, std::span(v).subspan(t * kv_width, kv_width));
                attend(l, first + t + 1, std::span(q).subspan(t * q_width, q_width), std::span(context).subspan(t * q_width, q_width));
            }
            l.o.multiply(threads_, context, x, {.plus = x});
            normalize(x, l.norm_out, normed);
            if (chosen_ != 0) {
                add_experts(l, normed, x);
                continue;
            }
            gate.resize(n * l.gate.w.rows), up.resize(gate.size());
            l.up.multiply(threads_, normed, up);
            l.gate.multiply(threads_, normed, gate, {.act = activation_, .times = up});
            l.down.multiply(threads_, gate, x, {.plus = x});
        }
        normalize(x, norm_, normed);
        std::vector<float> logits(n * words());
        (tied_ ? embedding_ : head_of_model_).multiply(threads_, normed, logits);
        return logits;
    }

  private:
    /// Adds what the experts give that each token's router chooses, each times its share.
    void add_experts(const layer& l, std::span<const float> normed, std::span<float> x) {
        const std::size_t n = x.size() / width_, experts = l.router.w.rows, rows = l.gate.w.rows / experts;
        std::vector<float> scores(n * experts), both(n * chosen_ * rows), inner(both.size() / 2);
        l.router.multiply(threads_, normed, scores);
        std::vector<std::uint32_t> order(experts);
        std::vector<qk::expert_choice> up, down;
        for (std::size_t t = 0; t < n; ++t) {
            const std::span<const float> s = std::span(scores).subspan(t * experts, experts);
            std::iota(order.begin(), order.end(), 0u);
            std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return s[a] > s[b]; });
            float sum = 0;
            for (std::size_t i = 0; i < chosen_; ++i) sum += std::exp(s[order[i]] - s[order[0]]);
            for (std::size_t i = 0; i < chosen_; ++i)
                down.push_back({order[i], 0, static_cast<std::uint32_t>(t), std::exp(s[order[i]] - s[order[0]]) / sum});
        }
        std::stable_sort(down.begin(), down.end(), [](const auto& a, const auto& b) { return a.expert < b.expert; });
        for (std::uint32_t i = 0; i < down.size(); ++i) {
            up.push_back({down[i].expert, down[i].to, i});
            down[i].from = i;
        }
        l.gate.multiply(threads_, {.rows = rows, .chosen = up}, normed, both);
        for (std::size_t i = 0; i < inner.size(); ++i) {
            const float a = std::min(both[2 * i], limit_), b = std::clamp(both[2 * i + 1], -limit_, limit_);
            inner[i] = a / (1 + std::exp(-1.702f * a)) * (b + 1);
        }
        l.down.multiply(threads_, {.rows = width_, .chosen = down}, inner, x, {.plus = x});
    }
    /// Reads what the config says of positions.
    void set_frequencies(const nlohmann::json& j) {
        const auto object = [&](const char* key) { return j.contains(key) && j[key].is_object() ? j[key] : nlohmann::json::object(); };
        nlohmann::json rope = object("rope_scaling");
        rope.update(object("rope_parameters"));
        const std::string type = rope.value("rope_type", rope.value("type", "default"));
        const double theta = rope.value("rope_theta", j.value("rope_theta", 10000.0)), factor = rope.value("factor", 1.0),
                     pi = std::acos(-1.0);
        const double original = rope.value("original_max_position_embeddings", 0.0), half = static_cast<double>(head_ / 2);
        if (type != "default" && type != "linear" && type != "llama3" && type != "yarn")
            fail("config.json: rope_type " + type + " is not known here");
        if (type == "yarn") size_of_turns_ = rope.value("attention_factor", factor > 1 ? 0.1 * std::log(factor) + 1 : 1.0);
        // The pair that turns so many times in the original context.
        const auto pair_of = [&](double turns) { return half * std::log(original / (turns * 2 * pi)) / std::log(theta); };
        double fast = pair_of(rope.value("beta_fast", 32.0)), slow = pair_of(rope.value("beta_slow", 1.0));
        if (rope.value("truncate", true)) fast = std::floor(fast), slow = std::ceil(slow);
        fast = std::max(fast, 0.0), slow = std::min(slow, 2 * half - 1);
        for (std::size_t k = 0; k < head_ / 2; ++k) {
            double part = 0;  // of this frequency as it is; the rest is slowed down
            const double f = std::pow(theta, -static_cast<double>(k) / half);
            if (type == "llama3") {
                const double low = rope.at("low_freq_factor"), high = rope.at("high_freq_factor");
                part = std::clamp((original * f / (2 * pi) - low) / (high - low), 0.0, 1.0);
            } else if (type == "yarn") {
                part = 1 - std::clamp((static_cast<double>(k) - fast) / (slow == fast ? 0.001 : slow - fast), 0.0, 1.0);
            }
            frequency_.push_back((1 - part) * f / factor + part * f);
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
    /// Computes the turns of n positions from `first` on, once for all layers.
    void set_turns(std::size_t first, std::size_t n) {
        turns_.clear();
        for (std::size_t t = 0; t < n; ++t) {
            for (const double f : frequency_) {
                const double angle = static_cast<double>(first + t) * f;
                turns_.push_back(
                    {static_cast<float>(size_of_turns_ * std::cos(angle)), static_cast<float>(size_of_turns_ * std::sin(angle))});
            }
        }
    }
    /// Norms of heads, if the model has them, and rotary positions.
    void turn(std::vector<float>& x, std::span<const float> norm, std::size_t heads) const {
        if (!norm.empty()) normalize(x, norm, x);
        for (std::size_t h = 0; h < x.size() / head_; ++h) {
            float* v = x.data() + h * head_;
            for (std::size_t k = 0; k < head_ / 2; ++k) {
                const auto [c, s] = turns_[h / heads * (head_ / 2) + k];
                const float a = v[k], b = v[k + head_ / 2];
                v[k] = a * c - b * s, v[k + head_ / 2] = b * c + a * s;
            }
        }
    }
    /// Queries of one token over the last of `tokens` of the cache: those that share a head go together.
    void attend(const layer& l, std::size_t tokens, std::span<const float> q, std::span<float> context) {
        const std::size_t shared = heads_ / kv_heads_, begin = tokens - std::min(tokens, l.window), seen = tokens - begin;
        std::vector<float> scores(shared * seen);
        for (std::size_t h = 0; h < kv_heads_; ++h) {
            const std::size_t at = h * shared * head_;
            qk::dispatch::dot_rows(l.keys.format(), l.keys.of_head(begin, seen, head_, h), {q.subspan(at, shared * head_), shared},
                                   {scores}, {.scale = 1 / std::sqrt(static_cast<float>(head_))});
            for (std::size_t m = 0; m < shared; ++m) {
                const std::span<float> s = std::span(scores).subspan(m * seen, seen);
                const float sink = l.sinks.empty() ? -std::numeric_limits<float>::infinity() : l.sinks[h * shared + m],
                            most = std::max(sink, *std::max_element(s.begin(), s.end()));
                for (float& p : s) p = std::exp(p - most);
                const float sum = std::accumulate(s.begin(), s.end(), std::exp(sink - most));
                for (float& p : s) p /= sum;
            }
            qk::dispatch::weighted_rows(l.values.format(), l.values.of_head(begin, seen, head_, h), {scores, shared},
                                        {context.subspan(at, shared * head_)});
        }
    }

    workers threads_;
    std::size_t heads_ = 0, kv_heads_ = 0, head_ = 0, width_ = 0, chosen_ = 0;
    float epsilon_ = 0, limit_ = 0;
    qk::activation activation_ = qk::activation::silu;
    std::vector<double> frequency_;  ///< radians a position, of each pair of a head
    double size_of_turns_ = 1;
    struct turned {
        float cosine, sine;
    };
    std::vector<turned> turns_;  ///< of the positions at work
    bool tied_ = false;
    matrix embedding_, head_of_model_;
    std::vector<float> norm_;
    std::vector<layer> layers_;
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
    std::size_t count = 16, threads = 1;
    bool copies = false;
    weights_as how = weights_as::packed;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        const auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : (fail(word + " takes a value"), std::string()); };
        const auto known = [&] { return word.starts_with("--") ? fail("there is no option " + word) : void(); };
        if (word == "--prompt") prompt = value();
        else if (word == "--tokens") count = whole_number("--tokens", value());
        else if (word == "--cache") cache_format = value();
        else if (word == "--logits") logits_file = value();
        else if (word == "--threads") threads = std::clamp<std::size_t>(whole_number("--threads", value()), 1, 256);
        else if (word == "--resident") copies = true;
        else if (word == "--floats") how = weights_as::floats;
        else if (word == "--integers") how = weights_as::integers;
        else known(), file = word;
    }
    if (file.empty())
        fail(
            "usage: custom_runtime CHECKPOINT [--prompt 1,2,3] [--tokens N] [--cache FORMAT] [--floats | --integers] [--threads N] "
            "[--logits FILE]");
    std::vector<std::size_t> tokens;
    for (std::size_t at = 0, end = 0; end != prompt.size(); at = end + 1) {
        end = std::min(prompt.find(',', at), prompt.size());
        tokens.push_back(whole_number("--prompt", prompt.substr(at, end - at)));
    }
    const auto f = qk::parse_format(cache_format);
    if (!f) fail("--cache " + cache_format + ": " + std::string(f.error.view()));
    auto c = qk::checkpoint::open(file);
    std::optional<resident> weights;
    if (copies) weights.emplace(c);
    decoder model(c, *f, tokens.size() + count, how, threads);
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
