# SPDX-License-Identifier: Apache-2.0
# hmmctl's verbs that need no daemon.
hmm_add_test(plan_e2e_test LABEL e2e SOURCES plan_test.cc TIMEOUT 300 DEPENDS hmmctl
             LIBS hmm_graph nlohmann_json::nlohmann_json)
get_filename_component(data ../data ABSOLUTE BASE_DIR ${CMAKE_CURRENT_SOURCE_DIR})
target_compile_definitions(plan_e2e_test PRIVATE HMMCTL_BINARY="$<TARGET_FILE:hmmctl>"
                           HMM_TEST_DATA="${data}")

# Its page of documentation shows what it prints.
hmm_add_script_test(plan_doc_test LABEL e2e TIMEOUT 600 DEPENDS hmmctl
                    COMMAND /usr/bin/python3 -B ${CMAKE_CURRENT_SOURCE_DIR}/plan_doc_test.py
                            $<TARGET_FILE:hmmctl>)
