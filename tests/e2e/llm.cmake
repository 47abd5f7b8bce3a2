# SPDX-License-Identifier: Apache-2.0
# hmm-llm against a real daemon.
get_filename_component(data ../data ABSOLUTE BASE_DIR ${CMAKE_CURRENT_SOURCE_DIR})
foreach(test llm_test llm_failure_test llm_input_test)
  hmm_add_test(${test} LABEL e2e SOURCES ${test}.cc TIMEOUT 600 DEPENDS hmmd hmmctl hmm-llm
               LIBS hmm_client hmm_test_daemon_process nlohmann_json::nlohmann_json)
  target_compile_definitions(${test} PRIVATE HMMD_BINARY="$<TARGET_FILE:hmmd>"
                             LLM_BINARY="$<TARGET_FILE:hmm-llm>" HMM_TEST_DATA="${data}"
                             HMMCTL_BINARY="$<TARGET_FILE:hmmctl>"
                             HMM_BINARY_DIR="${CMAKE_BINARY_DIR}"
                             LLM_SOURCE_DIR="${CMAKE_SOURCE_DIR}/client/examples/llm")
endforeach()

# The class it stands on.
foreach(test kv_cache_test kv_batch_test)
  hmm_add_test(${test} LABEL e2e SOURCES ${test}.cc TIMEOUT 300 DEPENDS hmmd
               LIBS hmm_client hmm_test_daemon_process)
  target_compile_definitions(${test} PRIVATE HMMD_BINARY="$<TARGET_FILE:hmmd>")
endforeach()

# Four engines with small models: the outputs are the same, the forecast holds, nothing leaks. How much
# quicker one memory is shows with large models on an idle machine (docs/first-model.md).
hmm_add_script_test(fleet_test LABEL e2e TIMEOUT 300 DEPENDS hmmd hmmctl hmm-llm
  COMMAND /usr/bin/python3 -B ${CMAKE_SOURCE_DIR}/client/examples/fleet/fleet.py
          --build ${CMAKE_BINARY_DIR} --model 4,128,4,2,300,2048 --sessions 4 --requests 4)
