/* SPDX-License-Identifier: Apache-2.0 */
/* libqk_onnxruntime: qk's kernels as operators of onnxruntime, in place of the functions of a file that `qk quantize` wrote.
 *
 *     OrtSessionOptions* options = ...;
 *     if (qk_onnxruntime_register(options, "mx.onnx") != 0) puts(qk_onnxruntime_problem());
 *
 * RegisterCustomOps, which the library exports, too, is what RegisterCustomOpsLibrary_V2 and its like in every language take.
 * docs/reference/portable_functions.md.
 */
#ifndef QK_ONNXRUNTIME_H
#define QK_ONNXRUNTIME_H

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/* Registers the operators with session options (OrtSessionOptions*) of the onnxruntime in this process, 1.17 or later. `model` names the
 * file that a session will be made of, or is NULL: its functions in formats of one's own are registered, too, and a file whose functions
 * are not those that qk wrote is refused. Returns 0, or another number where qk_onnxruntime_problem() says what is wrong. A second call
 * with the same options adds what is new. Any number of threads may call, and make their sessions at once: onnxruntime fails now and then
 * where two threads make the first sessions with new operators, so the first call makes one itself. */
int qk_onnxruntime_register(void* session_options, const char* model);

/* Looks at a file as qk_onnxruntime_register does, for languages that have no pointer to their session options: the next RegisterCustomOps
 * of this thread registers its functions. Returns 0, or another number where something is wrong; then the next one registers what it knows.
 */
int qk_onnxruntime_model(const char* model);

/* Returns the sentence of this thread's last call that failed; "" before the first. */
const char* qk_onnxruntime_problem(void);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
