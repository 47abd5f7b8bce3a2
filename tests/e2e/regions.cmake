# SPDX-License-Identifier: Apache-2.0
# Regions and jobs of the client library against a real daemon. The holder links the library that users
# get.
hmm_add_executable(region_holder region_holder.cc)
target_link_libraries(region_holder PRIVATE hmm::client)

hmm_add_test(regions_test LABEL e2e SOURCES regions_test.cc TIMEOUT 300
             LIBS hmm_client hmm_test_daemon_process DEPENDS hmmd region_holder)
hmm_add_test(regions_property_test LABEL e2e SOURCES regions_property_test.cc TIMEOUT 300
             LIBS hmm_client hmm_test_daemon_process DEPENDS hmmd)
foreach(test regions_test regions_property_test)
  target_compile_definitions(${test} PRIVATE HMMD_BINARY="$<TARGET_FILE:hmmd>"
                             HOLDER_BINARY="$<TARGET_FILE:region_holder>")
endforeach()
