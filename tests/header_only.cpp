// SPDX-License-Identifier: Apache-2.0
// The graph module as headers alone: everything in one translation unit.
#include <qk/graph/compensate.hpp>
#include <qk/graph/evaluate.hpp>
#include <qk/graph/quantize.hpp>
#include <qk/graph/search/search.hpp>
#include <qk/graph/export.hpp>
#include <qk/graph/recover.hpp>
int main(){ try { qk::graph::model::load("no_such_file.onnx"); } catch (const qk::graph::error&) {} }
