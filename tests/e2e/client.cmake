# SPDX-License-Identifier: Apache-2.0
# The client library against a real daemon, in processes of their own.
hmm_add_library(hmm_test_daemon_process ${CMAKE_SOURCE_DIR}/tests/support/daemon_process.cc)
target_link_libraries(hmm_test_daemon_process PUBLIC Catch2::Catch2)
target_include_directories(hmm_test_daemon_process PUBLIC ${CMAKE_SOURCE_DIR}/tests)

# Links the library that users get.
hmm_add_executable(client_holder client_holder.cc)
target_link_libraries(client_holder PRIVATE hmm::client)

hmm_add_test(client_test LABEL e2e SOURCES client_test.cc TIMEOUT 300
             LIBS hmm_client hmm_test_daemon_process DEPENDS hmmd)
hmm_add_test(client_failure_test LABEL e2e SOURCES client_failure_test.cc TIMEOUT 300
             LIBS hmm_client hmm_test_daemon_process DEPENDS hmmd client_holder)
hmm_add_test(client_later_test LABEL e2e SOURCES client_later_test.cc TIMEOUT 300
             LIBS hmm_client hmm_test_daemon_process DEPENDS hmmd)
foreach(test client_test client_failure_test client_later_test)
  target_compile_definitions(${test} PRIVATE HMMD_BINARY="$<TARGET_FILE:hmmd>"
                             HOLDER_BINARY="$<TARGET_FILE:client_holder>")
endforeach()
