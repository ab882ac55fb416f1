// SPDX-License-Identifier: Apache-2.0
#include "testing/fake_gpus.h"

#ifdef TS_WITH_CUDA
#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace tessera {
namespace {

// What a stream, an event, a graph or an executable graph is here.
struct Handle {
  int gpu = 0;
  bool capturing = false;
  size_t nodes = 0;
};

struct Block {
  std::unique_ptr<uint8_t[]> bytes;
  size_t size = 0;
  int gpu = 0;
};

struct Machine {
  std::mutex lock;
  std::vector<CudaCall> calls;
  std::map<const uint8_t*, Block> memory;
};
Machine& machine() {
  static Machine all;
  return all;
}
thread_local int current = 0;
thread_local cudaError_t last_error = cudaSuccess;

Handle* of(void* handle) { return static_cast<Handle*>(handle); }
// Null and CUDA's numbers for default streams are the thread's GPU's.
bool is_default(cudaStream_t stream) { return reinterpret_cast<uintptr_t>(stream) <= 2; }
int gpu_of(cudaStream_t stream) { return is_default(stream) ? current : of(stream)->gpu; }
int gpu_of(cudaEvent_t event) { return of(event)->gpu; }
int gpu_of(cudaGraph_t graph) { return of(graph)->gpu; }
int gpu_of(cudaGraphExec_t graph) { return of(graph)->gpu; }

// Contract: the machine is locked.
int gpu_of_memory(const void* p) {
  const auto& memory = machine().memory;
  auto block = memory.upper_bound(static_cast<const uint8_t*>(p));
  if (block == memory.begin()) return -1;
  --block;
  return static_cast<const uint8_t*>(p) < block->first + std::max<size_t>(block->second.size, 1) ? block->second.gpu
                                                                                                 : -1;
}

cudaError_t note(const char* name, int owner) {
  const std::lock_guard lock(machine().lock);
  machine().calls.push_back({name, current, owner});
  return cudaSuccess;
}
// For what CUDA does on one GPU only.
cudaError_t note_on(const char* name, int owner) {
  (void)note(name, owner);
  if (owner != current) last_error = cudaErrorInvalidResourceHandle;
  return owner == current ? cudaSuccess : cudaErrorInvalidResourceHandle;
}
template <class T>
cudaError_t make(const char* name, T* out) {
  *out = reinterpret_cast<T>(new Handle{.gpu = current});
  return note(name, current);
}
template <class T>
cudaError_t destroy(const char* name, T handle) {
  (void)note(name, gpu_of(handle));
  delete of(handle);
  return cudaSuccess;
}
cudaError_t launch(const char* name, cudaStream_t stream) {
  if (!is_default(stream) && of(stream)->capturing) ++of(stream)->nodes;
  return note_on(name, gpu_of(stream));
}
cudaError_t copy(const char* name, void* to, const void* from, size_t bytes, cudaMemcpyKind kind, bool captured) {
  int owner = -1;
  {
    const std::lock_guard lock(machine().lock);
    const int in = gpu_of_memory(to), out = gpu_of_memory(from);
    const bool wrong = (kind != cudaMemcpyDeviceToHost && in < 0) || (kind != cudaMemcpyHostToDevice && out < 0);
    if (wrong) return cudaErrorInvalidValue;
    owner = in >= 0 && in != current ? in : out >= 0 ? out : in;
  }
  if (!captured) std::memcpy(to, from, bytes);
  return note(name, owner);
}

bool may_be_anywhere(const std::string& name) {
  static const std::vector<std::string> kNames = {
      "cudaGetDevice",          "cudaSetDevice", "cudaGetDeviceCount",        "cudaGetDeviceProperties",
      "cudaDeviceGetAttribute", "cudaFree",      "cudaGetDeviceProperties_v2"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

cudaError_t properties(const char* name, cudaDeviceProp* p, int gpu) {
  (void)note(name, gpu);
  if (gpu < 0 || gpu >= kFakeGpus) return cudaErrorInvalidDevice;
  *p = {};
  std::strncpy(p->name, "fake GPU", sizeof(p->name) - 1);
  p->major = 9, p->minor = 0;
  return cudaSuccess;
}

}  // namespace

std::vector<CudaCall> cuda_calls() {
  const std::lock_guard lock(machine().lock);
  return machine().calls;
}
void forget_calls() {
  const std::lock_guard lock(machine().lock);
  machine().calls.clear();
}
std::vector<std::string> strays(int gpu) {
  std::vector<std::string> found;
  for (const CudaCall& c : cuda_calls()) {
    if (!may_be_anywhere(c.name) && (c.current != gpu || (c.of >= 0 && c.of != gpu)))
      found.push_back(c.name + " on GPU " + std::to_string(c.current) + " about " + std::to_string(c.of));
  }
  return found;
}
int64_t calls_of(const std::string& name) {
  const std::vector<CudaCall> calls = cuda_calls();
  return std::count_if(calls.begin(), calls.end(), [&](const CudaCall& c) { return c.name == name; });
}
int64_t bytes_on(int gpu) {
  const std::lock_guard lock(machine().lock);
  int64_t bytes = 0;
  for (const auto& [address, block] : machine().memory)
    bytes += block.gpu == gpu ? static_cast<int64_t>(block.size) : 0;
  return bytes;
}

// The names after TS_FAKE are what the linker wraps.
#define TS_FAKE(name) extern "C" cudaError_t __wrap_##name

TS_FAKE(cudaGetDevice)(int* gpu) {
  *gpu = current;
  return note("cudaGetDevice", -1);
}
TS_FAKE(cudaSetDevice)(int gpu) {
  if (gpu < 0 || gpu >= kFakeGpus) return cudaErrorInvalidDevice;
  current = gpu;
  return note("cudaSetDevice", gpu);
}
TS_FAKE(cudaGetDeviceCount)(int* count) {
  *count = kFakeGpus;
  return note("cudaGetDeviceCount", -1);
}
TS_FAKE(cudaGetDeviceProperties)(cudaDeviceProp* p, int gpu) { return properties("cudaGetDeviceProperties", p, gpu); }
// Its name up to CUDA 12.
TS_FAKE(cudaGetDeviceProperties_v2)(cudaDeviceProp* p, int gpu) {
  return properties("cudaGetDeviceProperties_v2", p, gpu);
}
TS_FAKE(cudaDeviceGetAttribute)(int* value, cudaDeviceAttr, int gpu) {
  *value = 132;  // the number of SMs is all that is asked for
  return note("cudaDeviceGetAttribute", gpu);
}
TS_FAKE(cudaDeviceSynchronize)() { return note("cudaDeviceSynchronize", current); }
TS_FAKE(cudaGetLastError)() { return std::exchange(last_error, cudaSuccess); }

TS_FAKE(cudaMalloc)(void** p, size_t bytes) {
  Block block{.bytes = std::make_unique<uint8_t[]>(std::max<size_t>(bytes, 1)), .size = bytes, .gpu = current};
  *p = block.bytes.get();
  {
    const std::lock_guard lock(machine().lock);
    machine().memory[block.bytes.get()] = std::move(block);
  }
  return note("cudaMalloc", current);
}
TS_FAKE(cudaFree)(void* p) {
  int owner = -1;
  {
    const std::lock_guard lock(machine().lock);
    owner = gpu_of_memory(p);
    if (machine().memory.erase(static_cast<const uint8_t*>(p)) == 0 && p != nullptr) return cudaErrorInvalidValue;
  }
  return note("cudaFree", owner);
}
TS_FAKE(cudaMemset)(void* p, int byte, size_t bytes) {
  int owner = -1;
  {
    const std::lock_guard lock(machine().lock);
    owner = gpu_of_memory(p);
  }
  if (owner < 0) return cudaErrorInvalidValue;
  std::memset(p, byte, bytes);
  return note("cudaMemset", owner);
}
TS_FAKE(cudaMemcpy)(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return copy("cudaMemcpy", to, from, bytes, kind, false);
}
TS_FAKE(cudaMemcpyAsync)(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const cudaError_t put = launch("the stream of cudaMemcpyAsync", stream);
  return put != cudaSuccess
             ? put
             : copy("cudaMemcpyAsync", to, from, bytes, kind, !is_default(stream) && of(stream)->capturing);
}

TS_FAKE(cudaStreamCreateWithFlags)(cudaStream_t* stream, unsigned) { return make("cudaStreamCreateWithFlags", stream); }
TS_FAKE(cudaStreamDestroy)(cudaStream_t stream) { return destroy("cudaStreamDestroy", stream); }
TS_FAKE(cudaStreamSynchronize)(cudaStream_t stream) { return note("cudaStreamSynchronize", gpu_of(stream)); }
TS_FAKE(cudaStreamWaitEvent)(cudaStream_t stream, cudaEvent_t event, unsigned) {
  (void)note("the event of cudaStreamWaitEvent", gpu_of(event));
  return note("cudaStreamWaitEvent", gpu_of(stream));
}
TS_FAKE(cudaEventCreate)(cudaEvent_t* event) { return make("cudaEventCreate", event); }
TS_FAKE(cudaEventCreateWithFlags)(cudaEvent_t* event, unsigned) { return make("cudaEventCreateWithFlags", event); }
TS_FAKE(cudaEventDestroy)(cudaEvent_t event) { return destroy("cudaEventDestroy", event); }
TS_FAKE(cudaEventRecord)(cudaEvent_t event, cudaStream_t stream) {
  (void)note("the event of cudaEventRecord", gpu_of(event));
  return gpu_of(event) == gpu_of(stream) ? note("cudaEventRecord", gpu_of(stream)) : cudaErrorInvalidResourceHandle;
}
TS_FAKE(cudaEventSynchronize)(cudaEvent_t event) { return note("cudaEventSynchronize", gpu_of(event)); }
TS_FAKE(cudaEventElapsedTime)(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  *ms = 1;
  return gpu_of(begin) == gpu_of(end) ? note("cudaEventElapsedTime", gpu_of(end)) : cudaErrorInvalidResourceHandle;
}

TS_FAKE(cudaStreamBeginCapture)(cudaStream_t stream, cudaStreamCaptureMode) {
  of(stream)->capturing = true, of(stream)->nodes = 0;
  return note("cudaStreamBeginCapture", gpu_of(stream));
}
TS_FAKE(cudaStreamEndCapture)(cudaStream_t stream, cudaGraph_t* graph) {
  of(stream)->capturing = false;
  *graph = reinterpret_cast<cudaGraph_t>(new Handle(*of(stream)));
  return note("cudaStreamEndCapture", gpu_of(stream));
}
TS_FAKE(cudaStreamIsCapturing)(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const bool is = !is_default(stream) && of(stream)->capturing;
  *status = is ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return note("cudaStreamIsCapturing", gpu_of(stream));
}
// The stream stands for the graph that it is making.
#if CUDART_VERSION >= 13000
TS_FAKE(cudaStreamGetCaptureInfo)
(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long*, cudaGraph_t* graph, const cudaGraphNode_t**,
 const cudaGraphEdgeData**, size_t*) {
#else
TS_FAKE(cudaStreamGetCaptureInfo_v2)
(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long*, cudaGraph_t* graph, const cudaGraphNode_t**,
 size_t*) {
#endif
  *graph = reinterpret_cast<cudaGraph_t>(stream);
  *status = of(stream)->capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return note("cudaStreamGetCaptureInfo", gpu_of(stream));
}
TS_FAKE(cudaGraphGetNodes)(cudaGraph_t graph, cudaGraphNode_t*, size_t* count) {
  *count = of(graph)->nodes;
  return note("cudaGraphGetNodes", gpu_of(graph));
}
TS_FAKE(cudaGraphInstantiate)(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = reinterpret_cast<cudaGraphExec_t>(new Handle(*of(graph)));
  return note("cudaGraphInstantiate", gpu_of(graph));
}
TS_FAKE(cudaGraphDestroy)(cudaGraph_t graph) { return destroy("cudaGraphDestroy", graph); }
TS_FAKE(cudaGraphExecDestroy)(cudaGraphExec_t exec) { return destroy("cudaGraphExecDestroy", exec); }
TS_FAKE(cudaGraphLaunch)(cudaGraphExec_t exec, cudaStream_t stream) {
  if (gpu_of(exec) != gpu_of(stream)) return cudaErrorInvalidResourceHandle;
  return launch("cudaGraphLaunch", stream);
}

TS_FAKE(cudaLaunchKernel)(const void*, dim3, dim3, void**, size_t, cudaStream_t stream) {
  return launch("cudaLaunchKernel", stream);
}
TS_FAKE(cudaLaunchKernelExC)(const cudaLaunchConfig_t* config, const void*, void**) {
  return launch("cudaLaunchKernelExC", config->stream);
}
TS_FAKE(cudaFuncSetAttribute)(const void*, cudaFuncAttribute, int) { return note("cudaFuncSetAttribute", current); }
#if CUDART_VERSION >= 13000
// What <<<>>> becomes.
TS_FAKE(__cudaGetKernel)(cudaKernel_t* kernel, const void* entry) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(entry));
  return cudaSuccess;
}
TS_FAKE(__cudaLaunchKernel)(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t stream) {
  return launch("cudaLaunchKernel", stream);
}
#endif

}  // namespace tessera
#endif
