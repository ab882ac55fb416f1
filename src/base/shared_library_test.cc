// SPDX-License-Identifier: Apache-2.0
#include "base/shared_library.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

namespace tessera {
namespace {

constexpr const char* kVariable = "TESSERA_LIBRARY_OF_A_TEST";

// libc is where every test runs; its name is the same on each glibc.
LibrarySearch libc(std::span<const std::string> folders = {}) {
  return {"The C library", "libc.so.6", kVariable, folders};
}

TEST(SharedLibrary, FindsFunctions) {
  unsetenv(kVariable);
  Result<SharedLibrary> library = SharedLibrary::open(libc());
  ASSERT_TRUE(library.ok()) << library.status().message();
  int (*absolute)(int) = nullptr;
  ASSERT_TRUE(library->find(absolute, "abs").ok());
  EXPECT_EQ(absolute(-7), 7);
  const Status missing = library->find(absolute, "no_such_function");
  EXPECT_NE(missing.message().find("libc.so.6 has no function no_such_function"), std::string::npos)
      << missing.message();
}

TEST(SharedLibrary, ANamedFileIsTheOnlyOneTried) {
  setenv(kVariable, "/no/such/libc.so.6", 1);
  const std::string message = SharedLibrary::open(libc()).status().message();
  unsetenv(kVariable);
  EXPECT_NE(message.find("/no/such/libc.so.6"), std::string::npos) << message;
  EXPECT_NE(message.find("must name libc.so.6; nothing else is tried"), std::string::npos) << message;
}

TEST(SharedLibrary, EveryPlaceTriedIsSaid) {
  const std::vector<std::string> folders = {"/first/folder", "/second/folder"};
  const LibrarySearch search{"A library", "libof_a_test.so.1", kVariable, folders};
  const std::string message = SharedLibrary::open(search).status().message();
  for (const char* word : {"/first/folder/libof_a_test.so.1", "/second/folder/libof_a_test.so.1", kVariable})
    EXPECT_NE(message.find(word), std::string::npos) << message;
}

}  // namespace
}  // namespace tessera
