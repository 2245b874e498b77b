// SPDX-License-Identifier: Apache-2.0
#include "hardware/ask_device.hpp"

#include <fmt/format.h>
#include <sys/wait.h>

#include "hardware/dot_case.hpp"
#include "qk/codec/layout/layout.hpp"
#include "qk/formats/parse.hpp"

namespace qk::tool {
namespace {

using code_list = std::vector<std::uint64_t>;
using graph::error;

/// Returns the bits of every element of an array that must have two dimensions.
code_list matrix_of(const std::vector<graph::named_tensor>& arrays, const std::string& name, const std::string& file, int bits) {
    const graph::tensor* t = find_array(arrays, name);
    if (t == nullptr)
        throw error(fmt::format("{} has no array {}; a case has codes a [m,k], b [k,n], c [m,n] and mostly d [m,n]", file, name));
    const auto width = static_cast<int>(8 * graph::size_of(t->type()));
    if (t->shape().size() != 2 || width > 32)
        throw error(fmt::format("{}: {} has shape {} of {}; it must be a matrix of codes of 8, 16 or 32 bits", file, name,
                                graph::to_string(t->shape()), name_of(t->type())));
    return codes_of(*t, file + ": " + name, std::min(bits, width));
}

}  // namespace

std::vector<graph::named_tensor> arrays_of(const compare::dot_task& task, const compare::dot_case& c, bool joined) {
    const auto [m, n, k] = c.shape;
    std::vector<graph::named_tensor> all;
    const int wa = width_of(task.a), wb = width_of(task.b);
    all.push_back({"a", joined && wa == 4 ? codes_tensor(tool::joined(c.a, m, k, 1), m, k / 2, 8) : codes_tensor(c.a, m, k, wa)});
    all.push_back({"b", joined && wb == 4 ? codes_tensor(tool::joined(c.b, 1, k, n), k / 2, n, 8) : codes_tensor(c.b, k, n, wb)});
    all.push_back({"c", codes_tensor(c.c, m, n, task.c_bits())});
    if (!c.scale_a.empty()) all.push_back({"scale_a", codes_tensor(c.scale_a, m, c.scale_a.size() / m, 8)});
    if (!c.scale_b.empty()) all.push_back({"scale_b", codes_tensor(c.scale_b, c.scale_b.size() / n, n, 8)});
    return all;
}

compare::dot_case case_of(const std::vector<graph::named_tensor>& arrays, const std::string& file, compare::dot_task& task) {
    compare::dot_case c;
    const int wa = width_of(task.a), wb = width_of(task.b);
    c.a = matrix_of(arrays, "a", file, wa == 4 ? 8 : wa);
    c.b = matrix_of(arrays, "b", file, wb == 4 ? 8 : wb);
    const auto m = static_cast<std::size_t>(find_array(arrays, "a")->shape()[0]),
               n = static_cast<std::size_t>(find_array(arrays, "b")->shape()[1]);
    if (m == 0 || n == 0) throw error(file + ": a or b is empty");
    if (wa == 4) c.a = parted(c.a, m, c.a.size() / m, 1);
    if (wb == 4) c.b = parted(c.b, 1, c.b.size() / n, n);
    c.shape = {m, n, c.a.size() / m};
    task.k = c.shape.k;
    if (c.b.size() != c.shape.k * n)
        throw error(fmt::format("{}: a has {} columns and b {} rows; they must be the same", file, c.shape.k, c.b.size() / n));
    if (task.has_c || find_array(arrays, "c") != nullptr) c.c = matrix_of(arrays, "c", file, 32);
    else c.c.assign(m * n, compare::no_addend(task));
    if (c.c.size() != m * n) throw error(fmt::format("{}: c has {} elements, not {} x {}", file, c.c.size(), m, n));
    if (const graph::tensor* t = find_array(arrays, "c"); t != nullptr && graph::size_of(t->type()) == 2 && task.c == fp32) task.c = fp16;
    if (task.sums_integers()) {
        for (std::uint64_t& v : c.c) v = static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<std::int32_t>(v)));
    }
    const auto scales = [&](const char* name, const qk::format& f, std::size_t rows, code_list& to) {
        if (block_size(f) == 0) return;
        to = matrix_of(arrays, name, file, 8);
        const std::size_t wanted = rows * (c.shape.k / static_cast<std::size_t>(block_size(f)));
        if (to.size() != wanted) throw error(fmt::format("{}: {} has {} codes, not {}", file, name, to.size(), wanted));
    };
    scales("scale_a", task.a, m, c.scale_a);
    scales("scale_b", task.b, n, c.scale_b);
    return c;
}

std::vector<std::uint64_t> results_of(const std::vector<graph::named_tensor>& arrays, const std::string& file, const product_shape& shape,
                                      int& bits) {
    code_list d = matrix_of(arrays, "d", file, 32);
    bits = static_cast<int>(8 * graph::size_of(find_array(arrays, "d")->type()));
    if (d.size() != shape.m * shape.n) throw error(fmt::format("{}: d has {} elements, not {} x {}", file, d.size(), shape.m, shape.n));
    return d;
}

std::vector<std::uint64_t> commanded_device::ask(const compare::dot_task& task, const compare::dot_case& c, int& bits) const {
    const std::filesystem::path in = folder_ / "case.npz", out = folder_ / "out.npz";
    std::error_code ignored;
    std::filesystem::remove(out, ignored);
    graph::write_npz(in, arrays_of(task, c));
    const int state = std::system(fmt::format("{} '{}' '{}' 1>&2", command_, in.string(), out.string()).c_str());
    if (state == -1 || !WIFEXITED(state) || WEXITSTATUS(state) != 0)
        throw error(fmt::format("--command: `{} CASE.npz OUT.npz` failed{}", command_,
                                state != -1 && WIFEXITED(state) ? fmt::format(" with status {}", WEXITSTATUS(state)) : ""));
    if (!std::filesystem::exists(out)) throw error(fmt::format("--command: `{} CASE.npz OUT.npz` wrote no OUT.npz", command_));
    return results_of(graph::read_npz(out), "OUT.npz of " + command_, c.shape, bits);
}

}  // namespace qk::tool
