// SPDX-License-Identifier: Apache-2.0
/* Runs Tessera's engines from C, C++ and whatever can call C: docs/library.md is the guide. C99 and newer.
 *
 * Every function that can fail returns a status: NULL is success, everything else has a code and one sentence, and is
 * freed with tess_status_free. Nothing is thrown, and nothing is printed.
 * Structs begin with their size (set it to sizeof): a program and a library of different versions understand each
 * other. Zeros in all other fields are the defaults. Those that are handed over as arrays or lie in others have none:
 * tess_tensor with its parts, tess_case and tess_array are frozen, they never grow. Handles may be freed in any order,
 * but not while a call that was given them goes on, and NULL may be freed.
 * Any function may be called from any thread. A context, a session and a state run one call at a time: a second call
 * is turned away with TESS_BUSY, and never gives a wrong result. */
#ifndef TESSERA_TESSERA_H
#define TESSERA_TESSERA_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TESS_API __attribute__((visibility("default")))
#else
#define TESS_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The number in the library's soname. A program runs with every later library of the same number. */
#define TESS_ABI_VERSION 1
TESS_API uint32_t tess_abi_version(void);
TESS_API const char* tess_version(void); /* of the library: "0.1.0" */

/* ------------------------------------------------------------------------------------------------------- status */

enum {
  TESS_OK = 0,
  TESS_VERIFY_FAILED = 1, /* a plan does not reproduce its golden values on this machine */
  TESS_USAGE = 2,         /* an argument is wrong */
  TESS_BAD_INPUT = 3,     /* a file or a tensor cannot be used */
  TESS_REFUSED = 4,       /* a layer cannot run in the precision asked for (builds) */
  TESS_MACHINE = 5,       /* no memory, no device, a CUDA or I/O failure */
  TESS_BUSY = 6,          /* the context, session or state is in use in another thread */
  TESS_CANCELLED = 7,     /* the caller asked to stop */
  TESS_INTERNAL = 8       /* a defect of the library */
};
typedef struct tess_status tess_status;
TESS_API int32_t tess_status_code(const tess_status* status);        /* TESS_OK of NULL */
TESS_API const char* tess_status_message(const tess_status* status); /* "" of NULL; valid until it is freed */
TESS_API void tess_status_free(tess_status* status);

/* A refusal as data: the layers that cannot run as asked, and who would not run each. 0 layers of every other status,
 * and of a refusal that is about no single layer. Strings live until the status is freed. */
typedef struct tess_refused_info {
  size_t size;
  const char* layer; /* by the name that `inspect` has */
  const char* op;    /* "matmul" */
  const char* asked; /* "mxfp8"; "": nothing was asked of this layer */
  size_t refusals;   /* 0: no kernel of this op is for the target */
} tess_refused_info;
typedef struct tess_refusal_info {
  size_t size;
  const char* kernel; /* "matmul/sm90_fp8"; "": the reason is of the layer itself */
  const char* reason;
} tess_refusal_info;
TESS_API size_t tess_refused_count(const tess_status* status);
TESS_API tess_status* tess_refused(const tess_status* status, size_t layer, tess_refused_info* out);
TESS_API tess_status* tess_refusal(const tess_status* status, size_t layer, size_t refusal, tess_refusal_info* out);

/* Notes and warnings of all engines in the process; without a function they are dropped. It may be called from any
 * thread, one line at a time, and must not call the library. */
enum { TESS_LOG_WARNING = 1, TESS_LOG_NOTE = 2 };
typedef void (*tess_log_function)(int32_t level, const char* line, void* user);
TESS_API void tess_set_log(tess_log_function log, void* user);

/* ------------------------------------------------------------------------------------------------------ tensors */

/* The layout of DLPack's DLTensor: a pointer to one may be given as a pointer to the other. Tensors are the caller's:
 * the library keeps no pointer to a struct after the call. strides (in elements) may be NULL, else they must be those
 * of dense rows. */
typedef struct tess_device {
  int32_t type; /* DLPack's kDLCPU 1, kDLCUDA 2, kDLCUDAHost 3, kDLCUDAManaged 13 */
  int32_t id;
} tess_device;
typedef struct tess_dtype {
  uint8_t code; /* DLPack's kDLInt 0, kDLUInt 1, kDLFloat 2, kDLBfloat 4, kDLFloat8_e4m3fn 10 ... */
  uint8_t bits;
  uint16_t lanes; /* 1 */
} tess_dtype;
typedef struct tess_tensor {
  void* data;
  tess_device device;
  int32_t ndim;
  tess_dtype dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} tess_tensor;
enum { TESS_CPU = 1, TESS_CUDA = 2, TESS_CUDA_HOST = 3, TESS_CUDA_MANAGED = 13 };
enum { TESS_INT = 0, TESS_UINT = 1, TESS_FLOAT = 2, TESS_BFLOAT = 4, TESS_FLOAT8_E4M3FN = 10, TESS_FLOAT8_E5M2 = 12 };

/* ------------------------------------------------------------------------------------------------------- engine */

typedef struct tess_engine tess_engine;
typedef struct tess_engine_options {
  size_t size;
  int32_t check_constants; /* 1: read every weight now and compare it with its checksum */
  int32_t reserved;        /* 0 */
} tess_engine_options;
/* Maps the file. options may be NULL, here and everywhere. */
TESS_API tess_status* tess_engine_open(const char* path, const tess_engine_options* options, tess_engine** out);
/* The same from a copy of these bytes. */
TESS_API tess_status* tess_engine_open_bytes(const void* bytes, size_t count, const tess_engine_options* options,
                                             tess_engine** out);
/* Contexts, sessions and states keep what they need of the engine. */
TESS_API void tess_engine_free(tess_engine* engine);
/* JSON: per plan and layer what was asked, stored and computed, as `tessera inspect --json` has it. */
TESS_API tess_status* tess_engine_manifest(const tess_engine* engine, const char** json);

/* What a command of the program found, as the JSON that it prints with --json. */
typedef struct tess_report tess_report;
TESS_API const char* tess_report_json(const tess_report* report); /* "" of NULL; valid until it is freed */
TESS_API void tess_report_free(tess_report* report);
/* `tessera inspect --json` of a file, which need not run here; scales not 0: with the numbers of constants that are
 * scales, --scales. */
TESS_API tess_status* tess_inspect(const char* path, int32_t scales, tess_report** out);

/* Strings and shapes that an info points to live as long as the handle that was asked. */
typedef struct tess_plan_info {
  size_t size;
  const char* name;  /* "batch8" */
  const char* graph; /* whose plan it is: "main" */
  const char* arch;  /* "cpu", "sm90" ... */
  int64_t batch;
  int64_t arena_bytes;
  size_t inputs, outputs;
  int32_t device_type; /* where it runs: TESS_CPU or TESS_CUDA */
  int32_t reserved;
} tess_plan_info;
typedef struct tess_port_info {
  size_t size;
  const char* name;
  const char* element; /* "f32", "f16", "i64" ... */
  tess_dtype dtype;
  int32_t ndim;
  const int64_t* shape;
  int64_t bytes;
  int32_t is_state; /* 1: it lies in the state, and its tensor may be NULL */
  int32_t reserved;
} tess_port_info;
TESS_API size_t tess_plan_count(const tess_engine* engine); /* plans that can be run */
TESS_API tess_status* tess_plan(const tess_engine* engine, size_t plan, tess_plan_info* out);
TESS_API tess_status* tess_port(const tess_engine* engine, size_t plan, int32_t is_output, size_t port,
                                tess_port_info* out);

/* -------------------------------------------------------------------------------------------------------- state */

/* What a session keeps between runs (a KV cache), all zeros at first. Contexts and sessions make their own unless they
 * are given one. */
typedef struct tess_state tess_state;
TESS_API tess_status* tess_state_make(const tess_engine* engine, int32_t device, tess_state** out);
TESS_API tess_status* tess_state_clear(tess_state* state); /* all zeros again */
TESS_API void tess_state_free(tess_state* state);

/* ------------------------------------------------------------------------------------------------------ context */

typedef struct tess_context tess_context;
typedef struct tess_context_options {
  size_t size;
  const char* plan;  /* NULL: any number of samples, through the plans that fit; then also: */
  const char* graph; /* which graph, where the engine has several */
  int32_t device;    /* of a CUDA plan */
  int32_t threads; /* of a CPU plan: a pool of so many for this context, the caller's included; 0: one that all share */
  int32_t no_verify; /* 1: golden values are not checked before a plan serves */
  int32_t reserved;
  void* arena; /* memory for a named plan's arena, at a multiple of 256 bytes, where it runs; NULL: its own */
  size_t arena_bytes;
  tess_state* state; /* of a named plan; NULL: its own */
} tess_context_options;
/* What contexts keep. Beside it a context on a GPU has a copy of the inputs and outputs of each of its plans there, for
 * tess_run, and a context of any number of samples has one on the host. While golden values are checked the plan has a
 * second arena, state and copies, which are given back before the context is made. */
typedef struct tess_memory {
  size_t size;
  int64_t weights_bytes; /* shared by all contexts of an engine on one device; on the host, pages of the file */
  int64_t arena_bytes;   /* of each context */
  int64_t state_bytes;   /* of each state */
} tess_memory;
TESS_API tess_status* tess_memory_needed(const tess_engine* engine, const tess_context_options* options,
                                         tess_memory* out);
/* A plan reproduces the engine's golden values here before it first serves: for a named plan now, else in the run that
 * first takes it. */
TESS_API tess_status* tess_context_make(const tess_engine* engine, const tess_context_options* options,
                                        tess_context** out);
TESS_API void tess_context_free(tess_context* context);
/* Of its plan, or of the largest one where it picks plans itself; there shape[0] counts samples and may be any, and of
 * an engine with lengths those may be shorter. */
TESS_API tess_status* tess_context_port(const tess_context* context, int32_t is_output, size_t port,
                                        tess_port_info* out);
/* The shape that an output has for these inputs, of which only the shapes are read. Where a context picks plans itself
 * and the engine has lengths (docs/engines.md), it follows theirs; else it is that of the port, with as many samples as
 * the first input. `ndim`: how many numbers `shape` takes, which is the port's. */
TESS_API tess_status* tess_output_shape(const tess_context* context, const tess_tensor* const* inputs,
                                        size_t input_count, size_t output, int64_t* shape, size_t ndim);
/* Host memory, a tensor per port in their order; returns when the outputs are there. A named plan takes exactly its
 * shapes, and allocates nothing. Outputs must not overlap other tensors: TESS_BAD_INPUT. */
TESS_API tess_status* tess_run(tess_context* context, const tess_tensor* const* inputs, size_t input_count,
                               tess_tensor* const* outputs, size_t output_count);
/* Of a named plan. CUDA: device memory, asynchronous on the caller's stream (a cudaStream_t; NULL is CUDA's default
 * stream), which may be under capture. The buffers stay until the stream has passed the run. CPU: the same as tess_run.
 */
TESS_API tess_status* tess_enqueue(tess_context* context, const tess_tensor* const* inputs, size_t input_count,
                                   tess_tensor* const* outputs, size_t output_count, void* stream);
/* From another thread: the tess_run that is going on returns TESS_CANCELLED after the step that it is running. A CUDA
 * plan that is running, and one with states, comes to its end first. */
TESS_API tess_status* tess_cancel(tess_context* context);
/* Asked in the thread of tess_run, between plans and between steps of CPU plans without states; 0: the run ends as by
 * tess_cancel. It must not use the context. NULL: nobody is asked. Not while the context runs: TESS_BUSY. */
typedef int32_t (*tess_go_on_function)(void* user);
TESS_API tess_status* tess_context_watch(tess_context* context, tess_go_on_function go_on, void* user);

/* ------------------------------------------------------------------------------------------------------ session */

/* An engine's graphs over one state, and its schedule as one call: a policy's three graphs. */
typedef struct tess_session tess_session;
typedef struct tess_case { /* frozen */
  const char* graph;
  const char* plan;
} tess_case;
typedef struct tess_session_options {
  size_t size;
  int64_t batch; /* of the plans; 0: the smallest that each graph has */
  int32_t device, threads, no_verify, reserved;
  tess_state* state;
  const tess_case* cases; /* plans of graphs that are named */
  size_t case_count;
} tess_session_options;
TESS_API tess_status* tess_session_make(const tess_engine* engine, const tess_session_options* options,
                                        tess_session** out);
TESS_API void tess_session_free(tess_session* session);
/* From the next call on these plans: smaller or larger buckets of lengths. Ports are those of the plans in use. Plans
 * of a schedule are for the same sizes and batch: name all that change. Where it fails, the session stays as it was.
 */
TESS_API tess_status* tess_session_use(tess_session* session, const tess_case* cases, size_t case_count);
TESS_API tess_status* tess_session_port_count(const tess_session* session, int32_t is_output, size_t* out);
TESS_API tess_status* tess_session_port(const tess_session* session, int32_t is_output, size_t port,
                                        tess_port_info* out);
TESS_API tess_status* tess_session_run(tess_session* session, const tess_tensor* const* inputs, size_t input_count,
                                       tess_tensor* const* outputs, size_t output_count);
TESS_API tess_status* tess_session_enqueue(tess_session* session, const tess_tensor* const* inputs, size_t input_count,
                                           tess_tensor* const* outputs, size_t output_count, void* stream);
TESS_API tess_status* tess_session_clear(tess_session* session); /* its state all zeros again */
/* As tess_cancel and tess_context_watch, between the steps of a schedule's CPU plans; one on a GPU comes to its end.
 * After TESS_CANCELLED the state holds what the steps before wrote, and outputs hold nothing of use: a schedule that
 * begins by writing its states (a policy's) is run again as it is; one that goes on from them wants tess_session_clear
 * first. */
TESS_API tess_status* tess_session_cancel(tess_session* session);
TESS_API tess_status* tess_session_watch(tess_session* session, tess_go_on_function go_on, void* user);

#ifdef __cplusplus
}
#endif
#endif
