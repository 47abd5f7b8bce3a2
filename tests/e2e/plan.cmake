# SPDX-License-Identifier: Apache-2.0
# hmmctl's verbs that need no daemon.
hmm_add_test(plan_e2e_test LABEL e2e SOURCES plan_test.cc TIMEOUT 120 DEPENDS hmmctl
             LIBS nlohmann_json::nlohmann_json)
get_filename_component(data ../data ABSOLUTE BASE_DIR ${CMAKE_CURRENT_SOURCE_DIR})
target_compile_definitions(plan_e2e_test PRIVATE HMMCTL_BINARY="$<TARGET_FILE:hmmctl>"
                           HMM_TEST_DATA="${data}")
