# SPDX-License-Identifier: Apache-2.0
# How our own targets are compiled. hmm_add_library and hmm_add_executable are the only ways to make
# one, so that warnings are errors everywhere and nothing is set globally.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()

set(HMM_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize= (address,undefined or thread)")

find_program(HMM_CCACHE ccache)
if(HMM_CCACHE)
  # Relative paths, so that one cache serves several build directories.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${HMM_CCACHE})
endif()
find_program(HMM_MOLD mold)
if(HMM_MOLD)
  add_link_options(-fuse-ld=mold)
endif()
if(HMM_SANITIZE)
  add_compile_options(-fsanitize=${HMM_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${HMM_SANITIZE})
  # TSan does not know stand-alone fences. Asio's order no memory that its mutexes do not.
  if(HMM_SANITIZE STREQUAL "thread")
    add_compile_definitions(BOOST_ASIO_DISABLE_FENCED_BLOCK)
  endif()
endif()

if(HMM_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "HMM_FUZZ needs clang, which libFuzzer is part of: cmake --preset fuzz")
  endif()
  # Coverage for the fuzzer everywhere; its main() only in the targets. Numbers of a file that are
  # cast to a type they do not fit in are found by no other sanitizer.
  add_compile_options(-fsanitize=fuzzer-no-link,float-cast-overflow -fno-sanitize-recover=all)
endif()

set(HMM_WARNINGS -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC bug 105329: with -O2 it sees overlap in any std::string + or = of a literal.
  list(APPEND HMM_WARNINGS -Wno-restrict)
endif()
if(HMM_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 cannot follow values through the sanitizers' checks, and warns inside std::regex.
  list(APPEND HMM_WARNINGS -Wno-maybe-uninitialized)
endif()

# hmm_add_library(name SOURCES... ) / hmm_add_executable(name SOURCES...)
function(hmm_add_library name)
  add_library(${name} STATIC ${ARGN})
  target_compile_options(${name} PRIVATE ${HMM_WARNINGS})
endfunction()
function(hmm_add_executable name)
  add_executable(${name} ${ARGN})
  target_compile_options(${name} PRIVATE ${HMM_WARNINGS})
endfunction()
