/* SPDX-License-Identifier: Apache-2.0
 * Runs an engine with one input and one output of f32 on a file of numbers, any number of samples:
 *   run_engine digits.tess images.f32 logits.f32
 * C99; link with -ltessera. */
#include <stdio.h>
#include <stdlib.h>
#include <tessera/tessera.h>

/* Prints the sentence of a status and frees it. Returns whether there was one. */
static int failed(tess_status* status) {
  if (status == NULL) return 0;
  fprintf(stderr, "run_engine: %s\n", tess_status_message(status));
  tess_status_free(status);
  return 1;
}

static float* read_numbers(const char* path, int64_t* count) {
  FILE* file = fopen(path, "rb");
  float* numbers = NULL;
  long bytes = 0;
  if (file == NULL) return NULL;
  if (fseek(file, 0, SEEK_END) == 0 && (bytes = ftell(file)) > 0 && fseek(file, 0, SEEK_SET) == 0) {
    *count = bytes / (long)sizeof(float);
    numbers = malloc((size_t)bytes);
    if (numbers != NULL && fread(numbers, sizeof(float), (size_t)*count, file) != (size_t)*count) {
      free(numbers);
      numbers = NULL;
    }
  }
  fclose(file);
  return numbers;
}

/* The shape of `port` for so many samples. */
static void set_tensor(tess_tensor* tensor, const tess_port_info* port, int64_t samples, int64_t* shape, float* data) {
  int32_t i;
  for (i = 0; i < port->ndim; ++i) shape[i] = i == 0 ? samples : port->shape[i];
  tensor->data = data;
  tensor->device.type = TESS_CPU;
  tensor->device.id = 0;
  tensor->ndim = port->ndim;
  tensor->dtype = port->dtype;
  tensor->shape = shape;
  tensor->strides = NULL;
  tensor->byte_offset = 0;
}

static int run(tess_context* context, float* in, int64_t numbers, const char* out_path) {
  tess_port_info input = {sizeof(input)}, output = {sizeof(output)};
  int64_t in_shape[8], out_shape[8], samples, out_numbers;
  tess_tensor x, y;
  const tess_tensor* inputs[1];
  tess_tensor* outputs[1];
  float* out;
  FILE* file;
  int bad;
  if (failed(tess_context_port(context, 0, 0, &input)) || failed(tess_context_port(context, 1, 0, &output))) return 1;
  samples = numbers / (input.bytes / (int64_t)sizeof(float) / input.shape[0]);
  out_numbers = samples * (output.bytes / (int64_t)sizeof(float) / output.shape[0]);
  out = malloc((size_t)out_numbers * sizeof(float) + 1);
  if (out == NULL) return 1;
  set_tensor(&x, &input, samples, in_shape, in);
  set_tensor(&y, &output, samples, out_shape, out);
  inputs[0] = &x;
  outputs[0] = &y;
  bad = failed(tess_run(context, inputs, 1, outputs, 1));
  if (!bad) {
    file = fopen(out_path, "wb");
    bad = file == NULL || fwrite(out, sizeof(float), (size_t)out_numbers, file) != (size_t)out_numbers;
    if (file != NULL) bad = fclose(file) != 0 || bad;
    printf("%ld samples of '%s' gave '%s'\n", (long)samples, input.name, output.name);
  }
  free(out);
  return bad;
}

int main(int argc, char** argv) {
  tess_engine* engine = NULL;
  tess_context* context = NULL;
  float* numbers;
  int64_t count = 0;
  int bad = 1;
  if (argc != 4) {
    fprintf(stderr, "usage: run_engine ENGINE IN.f32 OUT.f32\n");
    return 2;
  }
  numbers = read_numbers(argv[2], &count);
  if (numbers == NULL) {
    fprintf(stderr, "run_engine: %s cannot be read\n", argv[2]);
    return 2;
  }
  if (!failed(tess_engine_open(argv[1], NULL, &engine)) && !failed(tess_context_make(engine, NULL, &context)))
    bad = run(context, numbers, count, argv[3]);
  tess_context_free(context);
  tess_engine_free(engine);
  free(numbers);
  return bad;
}
