# SPDX-License-Identifier: Apache-2.0
# hmm_add_text(program FILE file ARGS words... DESTINATION dir)
# What a program says of itself (manual pages, completions), made at build time and installed.
function(hmm_add_text program)
  cmake_parse_arguments(ARG "" "FILE;DESTINATION" "ARGS" ${ARGN})
  set(out ${CMAKE_CURRENT_BINARY_DIR}/text/${ARG_DESTINATION}/${ARG_FILE})
  get_filename_component(folder ${out} DIRECTORY)
  string(REPLACE ";" " " words "${ARG_ARGS}")
  add_custom_command(
    OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${folder}
    COMMAND sh -c "\"$1\" ${words} >\"$2\"" sh $<TARGET_FILE:${program}> ${out}
    DEPENDS ${program} VERBATIM)
  string(MAKE_C_IDENTIFIER text_${program}_${ARG_FILE} target)
  add_custom_target(${target} ALL DEPENDS ${out})
  install(FILES ${out} DESTINATION ${ARG_DESTINATION})
endfunction()
