# SPDX-License-Identifier: Apache-2.0
# What went wrong in systems of this kind, done to ours (docs/guarantees.md lists all cases).
hmm_add_executable(case_peer case_peer.cc)
target_link_libraries(case_peer PRIVATE hmm::client)
target_include_directories(case_peer PRIVATE ${CMAKE_SOURCE_DIR}/tests)

foreach(subject room life)
  hmm_add_test(cases_${subject}_test LABEL e2e SOURCES cases_${subject}_test.cc TIMEOUT 300
               LIBS hmm_client hmm_test_daemon_process DEPENDS hmmd case_peer client_holder)
  target_compile_definitions(cases_${subject}_test PRIVATE HMMD_BINARY="$<TARGET_FILE:hmmd>"
                             HOLDER_BINARY="$<TARGET_FILE:client_holder>"
                             PEER_BINARY="$<TARGET_FILE:case_peer>")
endforeach()
# It measures what the machine has left, and takes most of it.
set_tests_properties(cases_room_test PROPERTIES RUN_SERIAL TRUE)
