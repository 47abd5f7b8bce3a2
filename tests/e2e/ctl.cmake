# SPDX-License-Identifier: Apache-2.0
# hmmctl against a real daemon.
hmm_add_test(ctl_e2e_test LABEL e2e SOURCES ctl_test.cc TIMEOUT 300
             LIBS hmm_ctl hmm_test_daemon_process DEPENDS hmmd hmmctl)
get_filename_component(data ../data ABSOLUTE BASE_DIR ${CMAKE_CURRENT_SOURCE_DIR})
target_compile_definitions(ctl_e2e_test PRIVATE HMMD_BINARY="$<TARGET_FILE:hmmd>"
                           HMMCTL_BINARY="$<TARGET_FILE:hmmctl>" HMM_TEST_DATA="${data}")

hmm_add_test(ctl_verbs_test LABEL e2e SOURCES ctl_verbs_test.cc TIMEOUT 600
             LIBS hmm_ctl hmm_test_daemon_process DEPENDS hmmd hmmctl)
target_link_libraries(ctl_verbs_test PRIVATE util)  # forkpty
target_compile_definitions(ctl_verbs_test PRIVATE HMMD_BINARY="$<TARGET_FILE:hmmd>"
                           HMMCTL_BINARY="$<TARGET_FILE:hmmctl>" HMM_TEST_DATA="${data}")
