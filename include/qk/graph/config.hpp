// SPDX-License-Identifier: Apache-2.0
// Header-only or compiled once: with QK_GRAPH_COMPILED the headers declare, and src/graph/*.cpp hold the definitions.
#pragma once

// Each public header NAME.hpp declares; NAME-inl.hpp defines with QK_GRAPH_INLINE. NAME.hpp includes NAME-inl.hpp at its end
// unless QK_GRAPH_COMPILED is defined. src/graph/*.cpp define QK_GRAPH_SOURCE and include the -inl headers themselves.
#ifdef QK_GRAPH_COMPILED
#define QK_GRAPH_INLINE
#else
#define QK_GRAPH_INLINE inline
#endif
