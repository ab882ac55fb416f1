// SPDX-License-Identifier: Apache-2.0
/* Builds engines: libtessera_build, which has the compiler in it. What it makes, libtessera runs. The rules of
 * tessera.h hold here too. docs/library.md is the guide. */
#ifndef TESSERA_TESSERA_BUILD_H
#define TESSERA_TESSERA_BUILD_H

#include <tessera/tessera.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An array in host memory: f32, f64, f16, i64, i32, i8 or u8. Frozen: it has no size, and never grows. */
typedef struct tess_array {
  const char* name;
  const tess_tensor* tensor;
} tess_array;

/* Called from any thread, one call at a time, and must not call the library. What is done is a word ("calibrating").
 * Not 0: the build ends with TESS_CANCELLED after the step that is running. */
typedef int32_t (*tess_progress_function)(const char* what, int64_t done, int64_t total, void* user);

/* The options of `tessera build` by the same names; NULL and 0 are its defaults. */
typedef struct tess_build_options {
  size_t size;
  const char* precision;
  const char* attention;
  const char* recipe; /* a shipped one by name, or a file */
  const char* target; /* "cpu", "sm90" ... */
  const int64_t* batches;
  size_t batch_count;
  const char* calib;              /* npz, folder of images, file of ranges; or: */
  const tess_array* calib_arrays; /* samples, an array per input: [samples, ...] */
  size_t calib_array_count;
  const char* calib_method;
  int64_t calib_samples;
  const char* const* allow; /* "LAYER=PRECISION" */
  size_t allow_count;
  int32_t no_verify; /* 1: no golden values */
  int32_t reserved;
  tess_progress_function progress;
  tess_log_function log;
  void* user; /* of both functions */
  /* What these words mean is in docs/engines.md and `tessera build --help`; a list has one for each time that the
   * option would stand on the line. A sentence about a wrong word names the option. */
  const char* family;        /* the model is a folder with a checkpoint of it */
  const char* const* shapes; /* --shape: "input_ids=1:8,16:512" */
  size_t shape_count;
  const char* const* states; /* --state: "past.*=present.*" */
  size_t state_count;
  const char* const* io; /* --io: "image=u8,mean=0.5,std=0.5" */
  size_t io_count;
  const char* const* sizes; /* --size, of a family: "tokens=1" */
  size_t size_count;
  const char* const* graphs; /* --graph: "decode:input_ids=1,1;attention_mask=1,64" */
  size_t graph_count;
  const char* schedule;  /* "prefix,step*10" */
  const int64_t* random; /* seed of a family's weights: the model is its config.json */
  const char* accumulate;
  const char* sparsity;
  const char* sparsity_by;
  const char* refine;
  const char* preprocess; /* of images */
  const char* tuning;
  const char* golden; /* "all", "smallest" */
  const char* golden_inputs;
  int64_t golden_samples;
  const int64_t* seed;
  const double* min_cosine;
  int32_t tune, chains, keep_norms; /* 1: yes */
  int32_t reserved_more;
} tess_build_options;

/* Builds the ONNX file `model` into the engine file `output`, which is written whole or not at all. One build at a time
 * in a process: a second one is turned away with TESS_BUSY. A layer that cannot run as asked: TESS_REFUSED. */
TESS_API tess_status* tess_build(const char* model, const char* output, const tess_build_options* options);

/* The options of `tessera verify` by the same names; NULL and 0 are its defaults. */
typedef struct tess_verify_options {
  size_t size;
  const char* inputs;             /* npz with samples; or: */
  const tess_array* input_arrays; /* an array per input: [samples, ...] */
  size_t input_array_count;
  const char* kinds; /* of random inputs: "normal,small" */
  const char* model; /* what the engine was built from: quantization error of every layer */
  const char* family;
  const char* plan;
  double min_cosine;
  int64_t samples;
  int64_t seed;
  int32_t outputs_only; /* 1: not layer by layer */
  int32_t reserved;
  tess_progress_function progress;
  tess_log_function log;
  void* user; /* of both functions */
} tess_verify_options;
/* Compares an engine file with its golden values, its golden plan and its model. TESS_VERIFY_FAILED: it strays, and
 * `out` has the report all the same; NULL of any other failure. In its turn with tess_build. */
TESS_API tess_status* tess_verify(const char* engine, const tess_verify_options* options, tess_report** out);

/* The options of `tessera sensitivity` by the same names. A precision is needed, and samples. */
typedef struct tess_sensitivity_options {
  size_t size;
  const char* precision;
  const char* attention;
  const char* calib;              /* npz or folder of images; or: */
  const tess_array* calib_arrays; /* samples, an array per input: [samples, ...] */
  size_t calib_array_count;
  const char* calib_method;
  int64_t calib_samples;
  const char* preprocess; /* of images */
  tess_progress_function progress;
  tess_log_function log;
  void* user; /* of both functions */
  /* How the model is read: as in tess_build_options, but that an axis or a size has one number. */
  const char* family;
  const char* const* shapes;
  size_t shape_count;
  const char* const* states;
  size_t state_count;
  const char* const* io;
  size_t io_count;
  const char* const* sizes;
  size_t size_count;
  const int64_t* random;
} tess_sensitivity_options;
/* Ranks the layers of the ONNX file, or the family's checkpoint, `model` by what their low precision costs. In its turn
 * with tess_build. */
TESS_API tess_status* tess_sensitivity(const char* model, const tess_sensitivity_options* options, tess_report** out);

#ifdef __cplusplus
}
#endif
#endif
