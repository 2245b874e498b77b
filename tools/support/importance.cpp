// SPDX-License-Identifier: Apache-2.0
#include "support/importance.hpp"

#include <fmt/format.h>

#include <cstring>

#include "qk/graph/files.hpp"
#include "qk/systems/ggml.hpp"
#include "support/console.hpp"

namespace qk::tool {
namespace {

using vectors = std::map<std::string, std::vector<float>>;

vectors read_npz_vectors(const std::string& file) {
    vectors all;
    for (const graph::named_tensor& t : graph::read_npz(file)) {
        if (t.value.type() != graph::data_type::float32) throw graph::error(file + ": " + t.name + " is not float32");
        const std::span<const float> x = t.value.as<float>();
        all[t.name].assign(x.begin(), x.end());
    }
    return all;
}

/// Reads NAME.in_sum2, sums of squares for each matrix of a stack, and NAME.counts, how many were added; a matrix that got none counts
/// evenly.
vectors read_imatrix_gguf(const std::string& file) {
    constexpr std::string_view sums = ".in_sum2", counts = ".counts";
    const checkpoint::checkpoint c = checkpoint::open(file);
    vectors all;
    for (const checkpoint::weight& w : c.weights) {
        if (!w.name.ends_with(sums)) continue;
        const std::string name = w.name.substr(0, w.name.size() - sums.size());
        const checkpoint::weight* of = c.find_weight(name + std::string(counts));
        if (of == nullptr) throw graph::error(file + " has " + w.name + ", and no " + name + std::string(counts));
        std::vector<float> x = c.decode(w);
        const std::vector<float> n = c.decode(*of);
        if (n.empty() || x.size() % n.size() != 0)
            throw graph::error(fmt::format("{}: {} has {} values for {} counts", file, w.name, x.size(), n.size()));
        const std::size_t columns = x.size() / n.size();
        for (std::size_t i = 0; i < x.size(); ++i) {
            const float count = n[i / columns];
            x[i] = count > 0 ? x[i] / count : 1.0f;
        }
        all[name] = std::move(x);
    }
    if (all.empty()) throw graph::error(file + " is no imatrix: it has no tensor NAME.in_sum2");
    return all;
}

/// Reads the older form: a count, then for each tensor its name, how often it was called, and the sums.
vectors read_imatrix_dat(const std::string& bytes, const std::string& file) {
    std::size_t at = 0;
    const auto take = [&](void* to, std::size_t n) {
        if (n > bytes.size() - at) throw graph::error(file + " is neither an .npz nor an imatrix of llama.cpp: it ends too early");
        std::memcpy(to, bytes.data() + at, n);
        at += n;
    };
    const auto number = [&](const char* what) {
        std::int32_t n = 0;
        take(&n, 4);
        if (n < 0 || static_cast<std::size_t>(n) > bytes.size())
            throw graph::error(fmt::format("{} is neither an .npz nor an imatrix of llama.cpp: {} {}", file, n, what));
        return static_cast<std::size_t>(n);
    };
    vectors all;
    for (std::size_t left = number("tensors"); left > 0; --left) {
        std::string name(number("bytes in a name"), '\0');
        take(name.data(), name.size());
        std::int32_t calls = 0;
        take(&calls, 4);
        std::vector<float> x(std::min(number("values"), (bytes.size() - at) / 4 + 1));
        take(x.data(), x.size() * 4);
        for (float& v : x)
            if (calls > 0) v /= static_cast<float>(calls);
        all[name] = std::move(x);
    }
    return all;
}

}  // namespace

importance_file::importance_file(const std::string& file, const checkpoint::checkpoint& c) : file_(file) {
    if (file.ends_with(".gguf")) vectors_ = read_imatrix_gguf(file);
    else if (const std::string bytes = graph::read_file(file); bytes.starts_with("PK")) vectors_ = read_npz_vectors(file);
    else vectors_ = read_imatrix_dat(bytes, file);
    std::size_t strangers = 0;
    std::string first;
    for (const auto& [name, values] : vectors_)
        if (c.find_weight(name) == nullptr && strangers++ == 0) first = name;
    if (strangers == vectors_.size())
        throw graph::error(fmt::format("--importance {}: none of its {} names is that of a weight of {}{}", file, vectors_.size(),
                                       c.path.string(), first.empty() ? "" : ", as '" + first + "' is not"));
    if (strangers != 0)
        print(stderr, "unused: --importance {}: {} of its {} names fit no weight, '{}' is the first\n", file, strangers, vectors_.size(),
              first);
}

std::vector<float> importance_file::of(const checkpoint::weight& w) const {
    const auto found = vectors_.find(w.name);
    return found == vectors_.end() ? std::vector<float>() : found->second;
}

std::vector<float> importance_file::of(const checkpoint::weight& w, ggml_type type) {
    const auto* known = systems::ggml::find(static_cast<int>(type));
    if (known == nullptr || !known->takes_importance) return {};
    std::vector<float> x = of(w);
    used_ |= !x.empty();
    return x;
}

void importance_file::say_if_unused() const {
    if (!vectors_.empty() && !used_)
        print(stderr, "unused: --importance {}: no weight that it names becomes a format whose rule looks at an importance\n", file_);
}

}  // namespace qk::tool
