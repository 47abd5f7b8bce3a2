# SPDX-License-Identifier: Apache-2.0
# Tenants with sockets of their own.
hmm_add_test(tenant_test LABEL e2e SOURCES tenant_test.cc TIMEOUT 300
             LIBS hmm_client hmm_test_daemon_process DEPENDS hmmd hmmctl)
target_compile_definitions(tenant_test PRIVATE HMMD_BINARY="$<TARGET_FILE:hmmd>"
                           HMMCTL_BINARY="$<TARGET_FILE:hmmctl>")
