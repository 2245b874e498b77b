// SPDX-License-Identifier: Apache-2.0
// What is said of a plan's notes: a line for each, and one line with a number where notes say the same of several layers or tensors. Lines
// about what is wrong or has to be done begin with "warning: "; the others are worth knowing.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qk/graph/quantize/planner.hpp"

namespace qk::graph {

/// Begins a remark about what is wrong or has to be done.
inline constexpr std::string_view warning_mark = "warning: ";

/// Is true for notes about what is wrong or has to be done: a request or an option that does nothing, a plan that changes nothing, a model
/// that is quantized already, a tensor of which little is left.
bool is_warning(const plan_note& n);

/// Returns a note as a line: its weight, its kind, where it was asked, its subject and its sentence.
std::string remark_line(const plan_note& n);

/// Returns the lines of notes, in their order. Notes of one kind and origin whose sentences differ in names and numbers alone share a line,
/// which has their number, the first one's name and its sentence; of kind `renamed` only notes with the same sentence. `widened` names the
/// tensors of notes of kind `boundary`.
std::vector<std::string> remark_lines(std::span<const plan_note> notes, const widened_tensors& widened = {});

}  // namespace qk::graph
