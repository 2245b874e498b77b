// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <nlohmann/json.hpp>

#include "graph/plan/operand_tables.hpp"
#include "qk/graph/base/format_text.hpp"
#include "qk/graph/plan/layers.hpp"
#include "qk/graph/quantize/encodings.hpp"

namespace qk::graph {

namespace detail {
inline quantizer read_encoding(const json_cursor& e) {
    if (const auto kind = e.find("enc_type"); kind && kind->is_string() && kind->text() == "LPBQ")
        kind->fail(
            "LPBQ encodings, whose blocks have integer scales within a channel, are not read; export this tensor as PER_BLOCK or "
            "PER_CHANNEL");
    e.only({"name", "enc_type", "dtype", "bw", "is_sym", "scale", "offset", "block_size"});
    const int bits = static_cast<int>(e.at("bw").integer(1, 32));
    quantizer q{.format = fp32, .axis = 0, .scale = {}, .zero_point = {}};
    if (e.at("dtype").text() == "FLOAT") {
        if (bits != 16 && bits != 32) e.at("bw").fail("a FLOAT encoding has 16 or 32 bits");
        if (bits == 16) q.format = fp16;
        return q;
    }
    if (e.at("dtype").text() != "INT") e.at("dtype").fail("\"dtype\" is \"INT\" or \"FLOAT\"");
    const std::string kind = e.at("enc_type").text();
    if (kind != "PER_TENSOR" && kind != "PER_CHANNEL" && kind != "PER_BLOCK")
        e.at("enc_type").fail("\"enc_type\" is PER_TENSOR, PER_CHANNEL or PER_BLOCK");
    const bool symmetric = e.has("is_sym") && e.at("is_sym").boolean();
    const integer f{.bits = bits, .is_signed = symmetric, .symmetric = symmetric};
    q.format = f;
    q.scale = e.at("scale").floats();
    for (const float s : q.scale)
        if (!(s > 0)) e.at("scale").fail("scales are above 0");
    if (kind == "PER_TENSOR" && q.scale.size() != 1) e.at("scale").fail("a PER_TENSOR encoding has one scale");
    if (kind == "PER_BLOCK") q.block_size = static_cast<int>(e.at("block_size").integer(1, 1 << 24));
    if (const auto offset = e.find("offset")) {
        const std::vector<std::int64_t> offsets = offset->integers();
        if (offsets.size() != q.scale.size())
            offset->fail("there are " + std::to_string(q.scale.size()) + " scales and " + std::to_string(offsets.size()) + " offsets");
        const std::int64_t shift = symmetric ? std::int64_t{1} << (bits - 1) : 0;
        for (const std::int64_t o : offsets) {
            const std::int64_t zero = -o - shift;
            if (zero < qmin(f) || zero > qmax(f))
                offset->fail("offset " + std::to_string(o) + " is outside " + std::to_string(bits) + " bits");
            q.zero_point.push_back(zero);
        }
    } else if (!symmetric) {
        e.fail("an asymmetric encoding needs its offset");
    }
    if (!is_shifted(q)) q.zero_point.clear();
    return q;
}
}  // namespace detail

precision_plan read_encodings(const json_cursor& c) {
    if (const std::string version = c.at("version").text(); version != "1.0.0")
        c.at("version").fail("AIMET encodings of version " + version + " are not read; export them as version 1.0.0");
    c.only({"version", "activation_encodings", "param_encodings", "quantizer_args", "excluded_layers", "producer"});
    precision_plan plan;
    for (const char* key : {"activation_encodings", "param_encodings"}) {
        const auto list = c.find(key);
        if (!list) continue;
        if (!list->is_array()) list->fail("an array is expected, as version 1.0.0 has it");
        for (std::size_t i = 0; i < list->size(); ++i) {
            const json_cursor e = list->at(i);
            if (!plan.tensors.emplace(e.at("name").text(), detail::read_encoding(e)).second)
                e.fail("tensor '" + e.at("name").text() + "' stands twice");
        }
    }
    return plan;
}

void place_encodings(precision_plan& plan, const model& m) {
    const layer_view layers(m);
    for (auto& [name, q] : plan.tensors) {
        if (q.scale.size() <= 1 || !m.is_constant(name)) continue;
        for (const auto& u : m.uses(name)) {
            if (u.node < 0) continue;
            const operand_axes axes = weight_axes(layers, u.node, u.input);
            q.axis = q.block_size > 0 ? axes.block : axes.channel;
            break;
        }
    }
}

nlohmann::ordered_json write_encodings(const precision_plan& plan, const model& m) {
    using json = nlohmann::ordered_json;
    json j{{"version", "1.0.0"},
           {"activation_encodings", json::array()},
           {"param_encodings", json::array()},
           {"excluded_layers", json::array()}};
    std::map<std::string, const quantizer*> all;
    for (const auto& [name, q] : plan.tensors) all[name] = &q;
    for (const auto& [e, q] : plan.edges) {
        const auto [place, fresh] = all.emplace(e.tensor, &q);
        if (!fresh && !(*place->second == q))
            throw error("tensor '" + e.tensor + "' has two formats, " + to_string(place->second->format) + " and " + to_string(q.format) +
                        "; encodings hold one for each tensor");
    }
    for (const auto& [name, q] : all) {
        json e{{"name", name}};
        if (const integer* f = std::get_if<integer>(&q->format); f != nullptr && !q->dynamic) {
            const bool symmetric = f->is_signed && !is_shifted(*q);
            const std::int64_t shift = f->is_signed ? std::int64_t{1} << (f->bits - 1) : 0;
            json offsets = json::array();
            for (std::size_t i = 0; i < q->scale.size(); ++i) offsets.push_back(-(q->zero_point.empty() ? 0 : q->zero_point[i]) - shift);
            e.update({{"enc_type", q->block_size > 0     ? "PER_BLOCK"
                                   : q->scale.size() > 1 ? "PER_CHANNEL"
                                                         : "PER_TENSOR"},
                      {"dtype", "INT"},
                      {"bw", f->bits},
                      {"is_sym", symmetric},
                      {"scale", q->scale},
                      {"offset", offsets}});
            if (q->block_size > 0) e["block_size"] = q->block_size;
        } else if (const floating* g = std::get_if<floating>(&q->format); g != nullptr && (*g == fp16 || *g == fp32)) {
            e.update({{"enc_type", "PER_TENSOR"}, {"dtype", "FLOAT"}, {"bw", bits(*g)}});
        } else {
            throw error("tensor '" + name + "' is " + to_string(q->format) + (q->dynamic ? " (dynamic)" : "") +
                        ", which AIMET's encodings 1.0.0 cannot hold; save a plan instead");
        }
        j[m.is_constant(name) ? "param_encodings" : "activation_encodings"].push_back(std::move(e));
    }
    return j;
}

}  // namespace qk::graph
