/* SPDX-License-Identifier: Apache-2.0 */
/* qk for C, and for whatever calls C: number formats, converters, dot products and the search for a device's mistakes. Link libqk.
 *
 *     qk_conversion how = {0};
 *     how.format = "mxfp8_e4m3";
 *     if (qk_fake_quantize(&how, x, y, n) != QK_OK) puts(qk_last_error());
 *
 * Contract, for every function:
 *   - Formats, semantics, accumulators and devices are given as text, in the syntax of the command `qk`. Members of a structure that are
 *     left 0 or NULL take their defaults. The library keeps no pointer after a call; texts that it returns belong to it or to the object.
 *   - A function that can fail returns a qk_status; one that returns something else fails with NULL or -1. qk_last_error() then says why
 *     in a sentence, and no output has been written. No C++ exception leaves the library, and no signal is raised.
 *   - Any number of threads may call at once; only one thread at a time may use an object (qk_report, qk_scoreboard, qk_dot_scoreboard).
 *   - Arrays are dense, floats are IEEE 754 binary32, and the processor rounds to nearest. x and y may be the same array; no other arrays
 *     may overlap.
 *   - Symbols are versioned: a program that was linked to one version runs with every later one of the same libqk.so.N.
 */
#ifndef QK_QK_H
#define QK_QK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

typedef enum qk_status {
    QK_OK = 0,
    QK_BAD_TEXT = 1,     /* a format, semantics, accumulator or device that does not exist */
    QK_BAD_ARGUMENT = 2, /* a null pointer, sizes that do not cover the array, an invalid scale */
    QK_NO_CODE = 3,      /* the semantics gives values for which the format has no code */
    QK_TOO_SMALL = 4,    /* a buffer is too short */
    QK_NO_MEMORY = 5,
    QK_DEVICE_FAILED = 6, /* the caller's qk_ask function returned something other than 0 */
    QK_NOTHING = 7        /* there is no such entry */
} qk_status;

/* Returns why the last call of this thread that failed did so; "" if none has failed. */
const char* qk_last_error(void);
/* Returns the version, MAJOR.MINOR.PATCH. */
const char* qk_version(void);

/* ---- names */

typedef struct qk_text {
    char chars[512];
} qk_text;

/* Return a name of the catalogue by index, from 0; NULL past the last. */
const char* qk_format_name(size_t index);
const char* qk_semantics_name(size_t index);
const char* qk_device_name(size_t index);

/* Check a text and write its canonical form. `canonical` may be NULL if only the status matters. */
qk_status qk_check_format(const char* format, qk_text* canonical);
qk_status qk_check_semantics(const char* semantics);
qk_status qk_check_accumulator(const char* accumulator_or_device, qk_text* canonical);

typedef struct qk_device {
    const char* name;
    const char* source;
    qk_text a_format, b_format, accumulator;
    int m, n, k; /* shape of one instruction; 0 if it has none */
} qk_device;
/* Finds a device of the catalogue. A name without a shape means the device with the largest k. */
qk_status qk_find_device(const char* name, qk_device* device);

/* ---- converters */

typedef struct qk_conversion {
    const char* format;    /* "mxfp4", "int8:symmetric", "float:exponent=3,mantissa=4"; qk_decode and products read "ggml.q4_K", too */
    const char* semantics; /* NULL: "ocp". A name, then changes: "quark,rounding=half-away,scale-rule=ceil,integer-mode=reciprocal,
                              overflow=ieee,seed=7,random-bits=8,flush-inputs,flush-outputs,zero-point-before,mxint-lowest" */
    /* The array's shape [outer][length][inner]; blocks and scales run along `length`. All 0: the array is a single row. */
    size_t outer, length, inner;
    /* Scales of integer and floating formats; NVFP4 takes one, that of the tensor (0: computed from the data). scale_count 0: the scale
       is 1; 1: one for the array; otherwise one for each index along `length` or, with scale_block, one for each run of scale_block
       values along `length`, as [outer][runs][inner]. */
    const float* scales;
    const int64_t* zero_points; /* one for each scale, or NULL for zeros */
    size_t scale_count, scale_block;
} qk_conversion;

/* Writes to y the values of x as the format represents them. */
qk_status qk_fake_quantize(const qk_conversion* how, const float* x, float* y, size_t n);
/* Likewise with random words of your own, one for each value: for semantics with rounding=stochastic, stochastic-b or stochastic-c. */
qk_status qk_fake_quantize_random(const qk_conversion* how, const uint32_t* words, const float* x, float* y, size_t n);
/* Computes what qk_fake_quantize computes with the slow oracle, which shares no line with the kernels. */
qk_status qk_reference(const qk_conversion* how, const float* x, float* y, size_t n);
/* Computes the gradient by x, gradient_in, with the straight-through estimator, and those by each scale and zero point if by_scale and
   by_zero_point are not NULL: one of each, or as many as scale_count. */
qk_status qk_fake_quantize_backward(const qk_conversion* how, const float* x, const float* gradient, float* gradient_in, size_t n,
                                    double* by_scale, double* by_zero_point);

/* Smallest and largest finite value. Start with a structure of zeros; an array may be observed in several pieces. */
typedef struct qk_range {
    float min, max;
    uint64_t count, special; /* number of finite values; number of Inf and NaN */
} qk_range;
qk_status qk_observe(qk_range* range, const float* x, size_t n);

/* How often a conversion overflows, saturates, ... */
typedef struct qk_flag_counts {
    uint64_t values, overflow, saturation, underflow, inexact, nan, invalid;
} qk_flag_counts;
qk_status qk_count_flags(const qk_conversion* how, const float* x, size_t n, qk_flag_counts* counts);

/* ---- codes: docs/reference/layouts.md says where each bit lies */

typedef struct qk_plane {
    size_t offset, count, bytes; /* first byte within one buffer; number of codes; length */
    int bits;                    /* per code */
} qk_plane;
typedef struct qk_layout {
    qk_plane elements, scales, shifts, tensor; /* count 0 where the format has no such plane */
    size_t bytes;
} qk_layout;
qk_status qk_layout_of(const qk_conversion* how, size_t n, qk_layout* layout);

/* ---- layouts of quantized matrices

   Where other systems keep the codes, scales and zero points of a matrix, by name: "gpt_oss", "modelopt.nvfp4", "compressed_tensors.mxfp4",
   "compressed_tensors.int4_g128_asym_bf16", "deepseek.fp8", "mlx.affine4_g64", "gptq.int4_g128", "gptq_v2.int4_g128", "awq.int4_g128",
   "matmul_nbits.int4_g32", "qmoe.int4_g32", "ggml.q4_0", "ggml.q4_0_8x8" (repacked rows); "+swizzled" behind a name means scales in
   cuBLAS's tiles of 128 x 4. qk/layout/values.hpp has them all. */
typedef struct qk_matrix {
    void* codes; /* not written to where it is an input; NULL where the layout has no such part */
    size_t codes_bytes;
    void* scales;
    size_t scales_bytes;
    void* zeros; /* zero points, or MLX's biases */
    size_t zeros_bytes;
    float global; /* the scale of the whole matrix, where the layout has one */
} qk_matrix;
/* Writes how many bytes each part of a matrix takes. */
qk_status qk_matrix_bytes(const char* layout, size_t rows, size_t columns, qk_matrix* sizes);
/* Moves a matrix from one layout to another, code by code. `changes`, which may be NULL, gets a sentence about what is not the same in
   both, "" if all is. QK_BAD_ARGUMENT: the codes of one are not those of the other. No buffers may overlap. */
qk_status qk_repack(const char* from, const char* to, size_t rows, size_t columns, const qk_matrix* in, qk_matrix* out, qk_text* changes);

qk_status qk_encode(const qk_conversion* how, const float* x, size_t n, void* packed, size_t bytes);
qk_status qk_decode(const qk_conversion* how, const void* packed, size_t bytes, float* y, size_t n);

/* Planes in buffers of their own. Pointers to planes that the format lacks are ignored. */
typedef struct qk_planes {
    void *elements, *scales, *shifts, *tensor;
} qk_planes;
typedef struct qk_const_planes {
    const void *elements, *scales, *shifts, *tensor;
} qk_const_planes;
qk_status qk_encode_planes(const qk_conversion* how, const float* x, size_t n, const qk_planes* planes);
qk_status qk_decode_planes(const qk_conversion* how, const qk_const_planes* planes, float* y, size_t n);

/* 16-bit floats, binary16 or bfloat16, given as their bits. */
typedef enum qk_storage { QK_FLOAT16 = 1, QK_BFLOAT16 = 2 } qk_storage;
qk_status qk_encode_16(const qk_conversion* how, qk_storage storage, const uint16_t* x, size_t n, void* packed, size_t bytes);
qk_status qk_decode_16(const qk_conversion* how, qk_storage storage, const void* packed, size_t bytes, uint16_t* y, size_t n);

/* Numbers as the caller keeps them. Begin with a structure of zeros: floats, one after the other. */
typedef struct qk_values {
    void* data;                  /* not written to where it is an input */
    int storage;                 /* 0: float; QK_FLOAT16, QK_BFLOAT16 */
    size_t rows, columns, pitch; /* pitch not 0: the values are rows * columns numbers, and row r begins at number r * pitch */
} qk_values;
/* What the functions without `_values` compute, for n numbers in any such memory. qk_fake_quantize_values: y may be the memory of x, laid
   out and stored alike. */
qk_status qk_fake_quantize_values(const qk_conversion* how, const qk_values* x, const qk_values* y, size_t n);
qk_status qk_encode_values(const qk_conversion* how, const qk_values* x, size_t n, const qk_planes* planes);
qk_status qk_decode_values(const qk_conversion* how, const qk_const_planes* planes, const qk_values* y, size_t n);
qk_status qk_observe_values(qk_range* range, const qk_values* x, size_t n);
qk_status qk_fake_quantize_backward_values(const qk_conversion* how, const qk_values* x, const qk_values* gradient,
                                           const qk_values* gradient_in, size_t n, double* by_scale, double* by_zero_point);

/* Read and write code `index` of a plane whose codes have 1 to 32 bits. */
uint32_t qk_get_code(const void* plane, int bits, size_t index);
void qk_put_code(void* plane, int bits, size_t index, uint32_t code);

/* ---- products over packed weights: docs/guide/products.md; qk/product.hpp has the order of every sum */

/* A matrix of packed weights, [rows][columns]. Its blocks lie in its rows. */
typedef struct qk_weights {
    qk_conversion how; /* format and scales; its shape may be 0: {rows, columns, 1}, or {1, rows, columns} with a scale for each row */
    qk_const_planes planes;
    size_t rows, columns;
} qk_weights;

typedef enum qk_activation { QK_NO_ACTIVATION = 0, QK_RELU = 1, QK_SILU = 2, QK_GELU = 3, QK_GELU_TANH = 4 } qk_activation;

/* Begin with a structure of zeros: one vector of floats, and the product as it is. Value k of vector m of x is number
   m * x_stride + k * x_step; x_step 0 means 1, and x_stride 0 that vectors lie one after the other. So for y.
   A sum s of row r becomes s * scale, s * row_scale[r], s + bias[r], act(s), s * times, s + plus, each step rounded to float32. */
typedef struct qk_product_options {
    size_t count; /* vectors; 0: one */
    size_t x_stride, x_step, y_stride, y_step;
    int x_storage, y_storage;      /* 0: float; QK_FLOAT16, QK_BFLOAT16 */
    float scale;                   /* 0: 1 */
    const float *row_scale, *bias; /* one for each row of y (qk_weighted_rows: row_scale for each column, no bias), or NULL */
    qk_activation act;             /* not in qk_weighted_rows */
    const void *times, *plus;      /* laid out and stored as y is, or NULL; qk_weighted_rows has plus alone */
    const float* begin;            /* qk_weighted_rows: where the sums begin, laid out as y is; NULL: at 0 */
    size_t first, last;            /* values of each vector of y that are computed, to before `last`; last 0: to the end */
    int integers;                  /* not 0: x is rounded to int8 by block of 32, sums of products are exact; scales are shared by
                                      a row, by 16 weights or by a multiple of 32, from the first column on */
    const char* x_format;          /* x is rounded to this format on its way, or NULL */
    int chains;                    /* not 0: sums are chains, the faster order for many vectors (product_sums::chains) */
    const float* rounded_scales;   /* with integers: x is what qk_round_vectors made, and these are its scales; NULL: x is numbers */
} qk_product_options;

/* Computes y = W x for `count` vectors. `options` may be NULL. */
qk_status qk_packed_product(const qk_weights* w, const void* x, void* y, const qk_product_options* options);

/* Rounds vectors of `columns` values to int8 by block of 32, as `integers` does on its way, once for all products that share them. With n
   = columns up to a multiple of 32, q gets `count` times n bytes, scales `count` times n / 32 floats. Of `options`, which may be NULL, it
   takes count, x_stride, x_step, x_storage and x_format. */
qk_status qk_round_vectors(const void* x, size_t columns, int8_t* q, float* scales, const qk_product_options* options);

/* Says that vector `from` of x is multiplied by an expert, and that the product times `weight` (after `act`) is vector `to` of y. */
typedef struct qk_expert_choice {
    uint32_t expert, from, to;
    float weight;
} qk_expert_choice;
/* Multiplies vectors of x (of which there are `count`) by the experts that a router chose. W has the experts' matrices one after the other,
   each of rows_of_expert rows; neighbours with the same expert share its decoded weights. expert_scale may be NULL. */
qk_status qk_grouped_product(const qk_weights* w, size_t rows_of_expert, const qk_expert_choice* chosen, size_t chosen_count,
                             const float* expert_scale, const void* x, void* y, const qk_product_options* options);

/* Rows of a packed cache: row r is number first_row + r * row_step of W (row_step 0: 1), and of each the columns from first_column on. */
typedef struct qk_rows {
    size_t rows, columns, first_row, row_step, first_column;
} qk_rows;
/* Attention over packed caches. y[m][r] = the sum over k of x[m][k] * rows[r][k]: scores. */
qk_status qk_dot_rows(const qk_weights* w, const qk_rows* rows, const void* x, void* y, const qk_product_options* options);
/* y[m][c] = the sum over r of x[m][r] * rows[r][c]: the context. */
qk_status qk_weighted_rows(const qk_weights* w, const qk_rows* rows, const void* x, void* y, const qk_product_options* options);

/* ---- what a converter does wrong: docs/guide/checking_hardware.md */

typedef struct qk_report qk_report;
typedef struct qk_cause {
    const char* sentence;
    const char* where;
    int only_there;    /* 1 if the mistake is made only there, else 0 */
    uint64_t explains; /* differences that would be unexplained without it */
} qk_cause;
/* Compares `device`, a device's output for x, with what the format says. Returns QK_OK whether or not they differ; free `report` with
   qk_report_free. */
qk_status qk_compare(const qk_conversion* how, const float* x, const float* device, size_t n, qk_report** report);
/* Likewise for a device that rounds with random words of its own, one for each value. */
qk_status qk_compare_random(const qk_conversion* how, const uint32_t* words, const float* x, const float* device, size_t n,
                            qk_report** report);
uint64_t qk_report_differences(const qk_report* report);
uint64_t qk_report_unexplained(const qk_report* report);
/* Gets one of the mistakes that together reproduce the device's values, by index from 0; returns QK_NOTHING past the last. */
qk_status qk_report_cause(const qk_report* report, size_t index, qk_cause* cause);
/* Gets the mistake that explains most differences if there are no causes; returns QK_NOTHING otherwise. */
qk_status qk_report_nearest(const qk_report* report, qk_cause* cause);
/* Returns the whole report as lines of text. */
const char* qk_report_text(const qk_report* report);
void qk_report_free(qk_report* report);

/* ---- dot products: docs/reference/numerics.md */

/* D = A B + C as a device computes it: A [m][k], B [k][n], C and D [m][n]. */
typedef struct qk_product {
    const char* accumulator;         /* a device's name, or an accumulator as text: "groups=16,align=25,round=toward-zero" */
    const char *a_format, *b_format; /* NULL: the device's */
    size_t m, n, k;
    int64_t a_zero_point, b_zero_point;
} qk_product;
typedef struct qk_dot_counts {
    uint64_t overflow, underflow, inexact, nan, saturation;
} qk_dot_counts;
/* Multiplies packed operands, whose blocks lie along k. C and D hold stored codes: 16 bits of fp16 and bf16, 64 of fp64, integers in
   two's complement of 64, otherwise float32's bits. c may be NULL for zeros. Adds to `counts`, which may be NULL. */
qk_status qk_multiply_add(const qk_product* product, const qk_const_planes* a, const qk_const_planes* b, const uint64_t* c, uint64_t* d,
                          qk_dot_counts* counts);
/* Operands with one code per word. Block scales are scale_a [m][blocks] and scale_b [blocks][n]; NULL for formats without blocks. */
typedef struct qk_codes {
    const uint64_t *a, *b, *c, *scale_a, *scale_b;
} qk_codes;
qk_status qk_multiply_add_codes(const qk_product* product, const qk_codes* codes, uint64_t* d, qk_dot_counts* counts);
/* Multiplies float32 values, which are first encoded with the semantics ocp. Fails for accumulators with fp64 or integer registers. */
qk_status qk_multiply_add_values(const qk_product* product, const float* a, const float* b, const float* c, float* d,
                                 qk_dot_counts* counts);
/* Computes one dot product of k values; m and n of `product` are ignored. */
qk_status qk_dot(const qk_product* product, const float* a, const float* b, float c, float* d);

/* A search for the accumulator of a device of which only answers are known. */
typedef struct qk_search {
    const char *a_format, *b_format;
    const char* c_format;  /* NULL: fp32; "none": a bare multiplier, which is asked with c = -0, and k may be 1 */
    size_t k;              /* terms of a sum; 0: 64 */
    int d_bits;            /* bits of a result: 8, 16 or 32; 0: 32 */
    size_t most_questions; /* 0: 10000 */
    uint64_t seed;
} qk_search;
typedef struct qk_found {
    qk_text accumulator;     /* the one that reproduces most answers */
    uint64_t questions, met; /* questions asked; answers that it reproduces */
} qk_found;
/* Asks the device: fills d [m][n] and returns 0. Any other result ends the search. */
typedef int (*qk_ask)(void* user, size_t m, size_t n, size_t k, const qk_codes* codes, uint64_t* d);
qk_status qk_find_accumulator(const qk_search* search, qk_ask device, void* user, qk_found* found);
/* Searches with answers that the caller already has. */
qk_status qk_fit_accumulator(const qk_search* search, size_t m, size_t n, const qk_codes* codes, const uint64_t* d, qk_found* found);

/* ---- scoreboards: they record one word at a time, with the types of SystemVerilog's DPI-C (include/qk/qk_pkg.sv)
 *
 * Inputs and the device's outputs are recorded separately, each in order. *_check compares what is complete and returns the number of
 * differences, or -1; *_verdict returns lines that say what is wrong. */

typedef struct qk_scoreboard qk_scoreboard;
/* `row` is the number of values after which blocks start anew; 0: never. `scale` 0 means 1. Returns NULL if an argument is wrong. */
qk_scoreboard* qk_scoreboard_new(const char* format, const char* semantics, int64_t row, double scale, int64_t zero_point);
/* Makes an input that tells converters apart, records it and returns its float32 bits. */
unsigned int qk_scoreboard_draw(qk_scoreboard* board);
void qk_scoreboard_input(qk_scoreboard* board, unsigned int float_bits);
/* Record the device's output: either values, or codes, with an element for each value and a scale for each block. */
void qk_scoreboard_output(qk_scoreboard* board, unsigned int float_bits);
void qk_scoreboard_element(qk_scoreboard* board, unsigned int code);
void qk_scoreboard_scale(qk_scoreboard* board, unsigned int code);
/* Records the random word of a value, for semantics with rounding=stochastic: one for each input, in the inputs' order. */
void qk_scoreboard_word(qk_scoreboard* board, unsigned int word);
/* Return the code that the device should give for input `position`, and the scale's code of block `block`, both counted from 0. The inputs
   of its whole block (with `row`: of its whole row) and their words must have been recorded; else they return 0xffffffff, and qk_last_error
   says why. */
unsigned int qk_scoreboard_expected(qk_scoreboard* board, int64_t position);
unsigned int qk_scoreboard_expected_scale(qk_scoreboard* board, int64_t block);
/* Returns 1 where `code` is right for input `position`, and any NaN is where NaN is; 0 where it is not; -1 where qk_scoreboard_expected
   refuses. */
int qk_scoreboard_matches(qk_scoreboard* board, int64_t position, unsigned int code);
int64_t qk_scoreboard_check(qk_scoreboard* board);
const char* qk_scoreboard_verdict(qk_scoreboard* board);
void qk_scoreboard_free(qk_scoreboard* board);

typedef struct qk_dot_scoreboard qk_dot_scoreboard;
/* Formats may be NULL or "" for those of the device. `k` is the number of terms of a sum. */
qk_dot_scoreboard* qk_dot_scoreboard_new(const char* accumulator, const char* a_format, const char* b_format, int64_t k);
/* Says before the first question that the unit adds no C: C is -0 in every question, which changes no sum, and no mistake of C is
   looked for. */
void qk_dot_scoreboard_without_c(qk_dot_scoreboard* board);
/* Makes the next question that tells accumulators apart; the functions below return its codes by position. Returns 0, or -1 for formats
   for which no questions can be made (docs/guide/checking_hardware.md). */
int qk_dot_scoreboard_draw(qk_dot_scoreboard* board);
uint64_t qk_dot_scoreboard_a(const qk_dot_scoreboard* board, int position);
uint64_t qk_dot_scoreboard_b(const qk_dot_scoreboard* board, int position);
uint64_t qk_dot_scoreboard_scale_a(const qk_dot_scoreboard* board, int block);
uint64_t qk_dot_scoreboard_scale_b(const qk_dot_scoreboard* board, int block);
uint64_t qk_dot_scoreboard_c(const qk_dot_scoreboard* board);
/* Starts a question of the test bench's own: all its codes are 0 until they are put. */
void qk_dot_scoreboard_ask(qk_dot_scoreboard* board);
void qk_dot_scoreboard_put_a(qk_dot_scoreboard* board, int position, uint64_t code);
void qk_dot_scoreboard_put_b(qk_dot_scoreboard* board, int position, uint64_t code);
void qk_dot_scoreboard_put_scale_a(qk_dot_scoreboard* board, int block, uint64_t code);
void qk_dot_scoreboard_put_scale_b(qk_dot_scoreboard* board, int block, uint64_t code);
void qk_dot_scoreboard_put_c(qk_dot_scoreboard* board, uint64_t code);
/* Returns what the accumulator gives for the current question. */
uint64_t qk_dot_scoreboard_expected(qk_dot_scoreboard* board);
/* Returns 1 where the device may give `d` for the current question: what the accumulator gives, or any NaN where that is NaN. Otherwise 0,
   or -1 with qk_last_error. */
int qk_dot_scoreboard_matches(qk_dot_scoreboard* board, uint64_t d);
/* Records the current question with the device's answer. */
void qk_dot_scoreboard_answer(qk_dot_scoreboard* board, uint64_t d);
int64_t qk_dot_scoreboard_check(qk_dot_scoreboard* board);
const char* qk_dot_scoreboard_verdict(qk_dot_scoreboard* board);
void qk_dot_scoreboard_free(qk_dot_scoreboard* board);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
