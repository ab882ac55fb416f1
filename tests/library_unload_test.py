# SPDX-License-Identifier: Apache-2.0
"""libtessera as a component container has it: loaded by dlopen while threads are there, used, and closed again, several
times in one process, with runs of a pool in between, forks, and a thread that ends after the library is gone. Argument:
the folder with the program."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

REPO = pathlib.Path(__file__).resolve().parent.parent
BIN = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else "build/release/bin").resolve()
DIGITS = REPO / "assets" / "digits"
SAMPLES, ROUNDS = 512, 4

if not shutil.which("cc"):
    print("no cc: skipped")
    sys.exit(77)

SOURCE = r"""
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tessera/tessera.h>
#include <unistd.h>

enum { kSamples = SAMPLES, kRounds = ROUNDS };
static float images[kSamples * 64], logits[kSamples * 10], first[kSamples * 10];
static void* library;
static const char* path;

static void* get(const char* name) {
  void* f = dlsym(library, name);
  if (f == NULL) printf("no %s\n", name), exit(1);
  return f;
}
#define GET(name) __typeof__(&name) p_##name = (__typeof__(&name))get(#name)

static void check(tess_status* status) {
  GET(tess_status_message);
  if (status != NULL) printf("%s\n", p_tess_status_message(status)), exit(1);
}

static void use(int threads) {
  GET(tess_engine_open);
  GET(tess_engine_free);
  GET(tess_context_make);
  GET(tess_context_free);
  GET(tess_run);
  GET(tess_session_make);
  GET(tess_session_run);
  GET(tess_session_free);
  tess_engine* engine = NULL;
  tess_context* context = NULL;
  tess_session* session = NULL;
  tess_context_options options = {sizeof(options)};
  tess_session_options of_session = {sizeof(of_session)};
  int64_t in[] = {kSamples, 1, 8, 8}, out[] = {kSamples, 10};
  tess_tensor x = {images, {TESS_CPU, 0}, 4, {TESS_FLOAT, 32, 1}, in, NULL, 0};
  tess_tensor y = {logits, {TESS_CPU, 0}, 2, {TESS_FLOAT, 32, 1}, out, NULL, 0};
  const tess_tensor* inputs[] = {&x};
  tess_tensor* outputs[] = {&y};
  options.threads = threads, of_session.threads = threads;
  check(p_tess_engine_open(path, NULL, &engine));
  check(p_tess_context_make(engine, &options, &context));
  check(p_tess_session_make(engine, &of_session, &session));
  check(p_tess_run(context, inputs, 1, outputs, 1));
  memset(logits, 0, sizeof(logits));
  check(p_tess_session_run(session, inputs, 1, outputs, 1));
  p_tess_context_free(context), p_tess_session_free(session), p_tess_engine_free(engine);
}

static pthread_barrier_t used, closed;
static void* use_and_wait(void* nothing) {
  use(2);
  pthread_barrier_wait(&used);
  pthread_barrier_wait(&closed);
  return nothing;
}

static int is_mapped(const char* name) {
  char line[4096];
  int found = 0;
  FILE* maps = fopen("/proc/self/maps", "r");
  while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) found |= strstr(line, name) != NULL;
  if (maps != NULL) fclose(maps);
  return found;
}

/* The library's threads end before it is unmapped; a moment passes until the system has forgotten them. */
static void check_threads(int wanted) {
  int found = 0;
  for (int tries = 0; tries < 200 && found != wanted; ++tries, usleep(10000)) {
    DIR* tasks = opendir("/proc/self/task");
    found = -2; /* . and .. */
    while (tasks != NULL && readdir(tasks) != NULL) ++found;
    if (tasks != NULL) closedir(tasks);
  }
  if (found != wanted) printf("%d threads where %d are wanted\n", found, wanted), exit(1);
}

static void fork_once(void) {
  int status = 0;
  const pid_t child = fork();
  if (child == 0) _exit(7);
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
    printf("a child ended with %d\n", status), exit(1);
}

int main(int count, char** words) {
  path = words[2];
  for (size_t i = 0; i < kSamples * 64; ++i) images[i] = (float)(i % 17);
  pthread_barrier_init(&used, NULL, 2), pthread_barrier_init(&closed, NULL, 2);
  for (int round = 0; round < kRounds && count == 3; ++round) {
    pthread_t thread;
    library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) printf("%s\n", dlerror()), exit(1);
    use(0);
    if (round == 0) memcpy(first, logits, sizeof(first));
    use(3);
    pthread_create(&thread, NULL, use_and_wait, NULL);
    pthread_barrier_wait(&used);
    if (memcmp(first, logits, sizeof(first)) != 0) printf("other numbers in round %d\n", round), exit(1);
    fork_once();
    if (dlclose(library) != 0) printf("%s\n", dlerror()), exit(1);
    if (!is_mapped("libtessera.so")) check_threads(2);
    fork_once();
    pthread_barrier_wait(&closed);
    pthread_join(thread, NULL);
    fork_once();
  }
  printf("done, %s\n", is_mapped("libtessera.so") ? "mapped" : "unmapped");
  return 0;
}
"""


class UnloadTest(unittest.TestCase):
    def test_it_comes_and_goes(self):
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            build = (BIN / "tessera", "build", DIGITS / "vit.onnx", "-o", folder / "digits.tess", "--precision", "fp32")
            subprocess.run([*build, "--batch", str(SAMPLES), "--quiet"], check=True)
            source = SOURCE.replace("= SAMPLES", f"= {SAMPLES}").replace("= ROUNDS", f"= {ROUNDS}")
            (folder / "unload.c").write_text(source)
            words = ("cc", "-std=gnu99", "-O1", "-Wall", "-Wno-missing-field-initializers", "-I", REPO / "include")
            subprocess.run([*words, folder / "unload.c", "-o", folder / "unload", "-ldl", "-lpthread"], check=True)
            command = (folder / "unload", BIN.parent / "lib" / "libtessera.so", folder / "digits.tess")
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ})
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertRegex(done.stdout, "^done, (un)?mapped\n$")
            self.assertEqual(done.stderr, "")


if __name__ == "__main__":
    unittest.main()
