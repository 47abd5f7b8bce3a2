# SPDX-License-Identifier: Apache-2.0
# hmmd as a process of its own.
hmm_add_executable(daemon_peer daemon_peer.cc ${CMAKE_SOURCE_DIR}/tests/rpc/raw_session.cc)
target_link_libraries(daemon_peer PRIVATE hmm_share)
target_include_directories(daemon_peer PRIVATE ${CMAKE_SOURCE_DIR}/tests)

hmm_add_test(daemon_process_test LABEL e2e SOURCES daemon_test.cc TIMEOUT 300
             LIBS hmm_test_rpc hmm_test_daemon_process nlohmann_json::nlohmann_json
             DEPENDS hmmd daemon_peer)
target_compile_definitions(daemon_process_test PRIVATE HMMD_BINARY="$<TARGET_FILE:hmmd>"
                           PEER_BINARY="$<TARGET_FILE:daemon_peer>"
                           HMM_TOPOLOGY_DATA="${CMAKE_SOURCE_DIR}/tests/data/topology")
