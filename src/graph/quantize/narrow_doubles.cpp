// SPDX-License-Identifier: Apache-2.0
#include "graph/quantize/narrow_doubles.hpp"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "graph/model/check.hpp"
#include "graph/model/edit.hpp"
#include "graph/model/subgraphs.hpp"
#include "graph/model/taken_names.hpp"
#include "graph/model/tensor_proto.hpp"
#include "graph/plan/operand_tables.hpp"
#include "qk/graph/model/attribute.hpp"
#include "qk/graph/plan/layers.hpp"

namespace qk::graph {
namespace detail {

inline constexpr int float64_type = onnx::TensorProto::DOUBLE, float32_type = onnx::TensorProto::FLOAT;

class double_narrower {
  public:
    explicit double_narrower(model& m) : m_(m) {}

    std::string run() {
        if (!has_layers()) return {};
        narrow_graph(m_.graph());
        for (auto& f : *m_.proto().mutable_functions()) narrow_nodes(*f.mutable_node());
        keep_ends();
        m_.reindex();
        return "computes in float64: planned and written in float32, which formats stand for (" + std::to_string(constants_) +
               " constants made float32); inputs and outputs keep their type";
    }

  private:
    bool is_double(const std::string& name) const {
        if (m_.is_constant(name)) return m_.constant_type(name) == data_type::float64;
        return std::ranges::any_of(m_.inputs(), [&](const value_info& i) { return i.name == name && i.type == data_type::float64; });
    }
    bool has_layers() const {
        return std::ranges::any_of(m_.graph().node(), [&](const onnx::NodeProto& n) {
            return (kind_of(n) == layer_kind::compute || is_recurrent(n)) &&
                   std::ranges::any_of(n.input(), [&](const std::string& i) { return is_double(i); });
        });
    }

    void narrow_tensor(onnx::TensorProto& t, bool of_graph = false) {
        if (t.data_type() != float64_type) return;
        const std::string name = t.name();
        const tensor wide = of_graph ? m_.constant(name) : to_tensor(t, m_.folder());
        tensor made(data_type::float32, wide.shape());
        for (std::size_t i = 0; i < wide.size(); ++i) {
            const double v = wide.as<double>()[i];
            made.as<float>()[i] = static_cast<float>(v);
            if (std::isfinite(v) && !std::isfinite(made.as<float>()[i]))
                throw error(m_.label() + ": constant '" + name + "' of float64 holds " + std::to_string(v) +
                            ", which float32 does not: convert the model by hand first");
        }
        t.Clear();
        to_proto(made, name, t);
        ++constants_;
    }
    static void narrow_info(onnx::ValueInfoProto& v) {
        if (v.type().has_tensor_type() && v.type().tensor_type().elem_type() == float64_type)
            v.mutable_type()->mutable_tensor_type()->set_elem_type(float32_type);
    }
    /// Types stand in attributes: what a Cast, a random number or a constant is of.
    static bool names_type(const std::string& attribute) { return one_of(attribute, {"to", "dtype", "output_dtype", "output_datatype"}); }
    template <class Nodes>
    void narrow_nodes(Nodes& nodes) {
        for (onnx::NodeProto& n : nodes)
            for (auto& a : *n.mutable_attribute()) {
                if (a.type() == onnx::AttributeProto::INT && a.i() == float64_type && names_type(a.name())) a.set_i(float32_type);
                if (a.has_t()) narrow_tensor(*a.mutable_t());
                for (auto& t : *a.mutable_tensors()) narrow_tensor(t);
                if (a.has_g()) narrow_graph(*a.mutable_g());
                for (auto& g : *a.mutable_graphs()) narrow_graph(g);
            }
    }
    void narrow_graph(onnx::GraphProto& g) {
        for (auto& t : *g.mutable_initializer()) narrow_tensor(t, &g == &m_.graph());
        for (auto& t : *g.mutable_sparse_initializer()) narrow_tensor(*t.mutable_values());
        for (auto& v : *g.mutable_value_info()) narrow_info(v);
        if (&g != &m_.graph()) {
            for (auto& v : *g.mutable_input()) narrow_info(v);
            for (auto& v : *g.mutable_output()) narrow_info(v);
        }
        narrow_nodes(*g.mutable_node());
    }

    /// Puts a Cast behind every input and before every output of float64.
    void keep_ends() {
        onnx::GraphProto& g = m_.graph();
        taken_names names;
        names.take_graph(g);
        std::map<std::string, std::string> read, made;
        google::protobuf::RepeatedPtrField<onnx::NodeProto> all;
        const auto cast = [&](const std::string& from, const std::string& to, int type) {
            onnx::NodeProto& n = *all.Add();
            n.set_op_type("Cast");
            n.set_name(names.fresh(to + "/Cast"));
            n.add_input(from), n.add_output(to);
            set_attribute(n, "to", std::int64_t{type});
        };
        const auto is_wide = [](const onnx::ValueInfoProto& v) {
            return v.type().has_tensor_type() && v.type().tensor_type().elem_type() == float64_type;
        };
        for (const auto& i : g.input())
            if (is_wide(i) && !m_.is_constant(i.name())) cast(i.name(), read[i.name()] = names.fresh(i.name() + "_float32"), float32_type);
        for (const auto& o : g.output())
            if (is_wide(o) && !read.contains(o.name())) made[o.name()] = names.fresh(o.name() + "_float32");
        std::map<std::string, std::string> inside = read;  // what nodes and bodies read
        inside.insert(made.begin(), made.end());
        for (auto& n : *g.mutable_node()) {
            rename_inputs(n, inside);
            for (std::string& o : *n.mutable_output())
                if (const auto own = made.find(o); own != made.end()) o = own->second;
            all.Add()->Swap(&n);
        }
        for (const auto& [name, own] : made) cast(own, name, float64_type);
        g.mutable_node()->Swap(&all);
        for (auto& i : *g.mutable_input())
            if (m_.is_constant(i.name())) narrow_info(i);
    }
    static void rename_inputs(onnx::NodeProto& n, const std::map<std::string, std::string>& names) {
        for (std::string& i : *n.mutable_input())
            if (const auto own = names.find(i); own != names.end()) i = own->second;
        for_each_subgraph(n, [&](onnx::GraphProto& g) {
            for (auto& inner : *g.mutable_node()) rename_inputs(inner, names);
            for (auto& o : *g.mutable_output())  // a body may give what it has from around it
                if (const auto own = names.find(o.name()); own != names.end()) o.set_name(own->second);
        });
    }

    model& m_;
    int constants_ = 0;
};

}  // namespace detail

std::string narrow_doubles(model& m) { return detail::double_narrower(m).run(); }

}  // namespace qk::graph
