# SPDX-License-Identifier: Apache-2.0
"""The checks themselves: each finds what it is for in a small tree, and lets the good one pass."""

import contextlib
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import check_doc_snippets
import check_errors_doc
import check_format
import check_guarantees
import check_includes
import check_installed_headers
import check_paths
import check_registration
import check_sizes
import check_spdx
import check_tests_registered
import check_units
import gen_errors_doc
import lintlib

TABLE = """# src
| folder | may include | what it is for |
|---|---|---|
| base | | bottom |
| tier | base | a pool |
| hmm | base, tier | the manager |
| proto | | generated |
| daemon | base, tier, hmm, proto | top |
| client/include | | installed |
| client/lib | base, proto, client/include | the library |
"""


@contextlib.contextmanager
def tree_of(files):
    with tempfile.TemporaryDirectory() as root:
        for name, text in files.items():
            path = Path(root) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        yield root


def problems(check, files, **options):
    with tree_of(files) as root:
        return check.check(root, **options)


class Blank(unittest.TestCase):
    def test_lines_stay_and_content_goes(self):
        code = 'a /* { \n { */ b "{" \'{\' 1\'000\'000 R"x({\n)x" // {\nc'
        self.assertEqual(lintlib.blank(code), 'a \n b "" \'\' 1\'000\'000 \n \nc')

    def test_strings_may_be_kept(self):
        self.assertEqual(lintlib.blank('f("//x"); // y', keep_text=True), 'f("//x"); ')


class Includes(unittest.TestCase):
    good = {
        "src/README.md": TABLE,
        "src/base/units.h": "#pragma once\n#include <vector>\n",
        "src/tier/tier.h": '#include "base/units.h"\n#include "absl/status/status.h"\n',
        "src/hmm/manager.cc": '#include "tier/tier.h"\n// #include "daemon/main.h"\n',
        "daemon/main.cc": '#include <grpcpp/grpcpp.h>\n#include "hmm/manager.h"\n',
        "client/include/hmm/client.h": "#pragma once\n",
        "client/lib/client.cc": '#include "hmm/client.h"\n#include "hmm/v1/memory.grpc.pb.h"\n',
        "tests/unit/x_test.cc": '#include "hmm/manager.h"\n#include <grpcpp/grpcpp.h>\n',
    }

    def found(self, files=None):
        return problems(check_includes, {**self.good, **(files or {})})

    def test_a_good_tree_passes(self):
        self.assertEqual(self.found(), [])

    def test_an_upward_include_is_found(self):
        found = self.found(files={"src/base/bad.h": '\n#include "tier/tier.h"\n'})
        self.assertEqual(len(found), 1)
        self.assertIn("src/base/bad.h:2: includes tier/tier.h: base may not include tier", found[0])

    def test_an_upward_include_of_a_missing_file_is_found(self):
        self.assertEqual(len(self.found(files={"src/base/bad.h": '#include "tier/gone.h"\n'})), 1)

    def test_an_upward_include_in_angle_brackets_is_found(self):
        self.assertEqual(len(self.found(files={"src/base/bad.h": "#include <tier/tier.h>\n"})), 1)

    def test_the_core_may_not_include_the_client_by_the_same_prefix(self):
        self.assertEqual(len(self.found(files={"src/tier/bad.h": '#include "hmm/client.h"\n'})), 1)
        self.assertEqual(len(self.found(files={"src/hmm/bad.h": '#include "hmm/client.h"\n'})), 1)

    def test_a_name_that_means_two_files_is_an_error(self):
        found = self.found(files={"src/hmm/client.h": "", "daemon/a.cc": '#include "hmm/client.h"\n'})
        self.assertTrue(any("rename one" in f for f in found), found)

    def test_code_may_not_include_tests(self):
        found = self.found(files={"tests/support/fake.h": "",
                                  "src/tier/bad.cc": '#include "support/fake.h"\n'})
        self.assertEqual(len(found), 1)

    def test_dot_dot_is_refused(self):
        self.assertEqual(len(self.found(files={"src/tier/bad.h": '#include "../base/units.h"\n'})), 1)

    def test_a_missing_row_is_an_error(self):
        found = self.found(files={"src/extra/new.h": ""})
        self.assertEqual(found, ["src/extra/new.h:1: its folder has no row in src/README.md"])

    def test_a_missing_table_is_an_error(self):
        self.assertIn("src/README.md:1: no include table", self.found(files={"src/README.md": "#\n"}))

    def test_a_row_that_names_an_unknown_folder_is_an_error(self):
        self.assertTrue(self.found(files={"src/README.md": TABLE.replace("tier | base", "tier | bse")}))

    def test_a_circle_is_an_error(self):
        found = self.found(files={"src/README.md": TABLE.replace("| base | |", "| base | hmm |")})
        self.assertTrue(any("circle" in f for f in found), found)

    def test_grpc_stays_at_the_edges(self):
        for name in ("src/hmm/bad.cc", "src/base/bad.h", "client/lib/bad.h", "client/include/hmm/b.h"):
            with self.subTest(name):
                self.assertEqual(len(self.found(files={name: "#include <grpcpp/server.h>\n"})), 1)
        self.assertEqual(self.found(files={"client/lib/ok.cc": "#include <grpc/grpc.h>\n"}), [])


class Sizes(unittest.TestCase):
    @staticmethod
    def code(lines):
        return "".join(f"  x({i});\n" for i in range(lines))

    def test_functions_are_measured_from_head_to_brace(self):
        code = ("#define M(x) \\\n  { x\nnamespace a {\nclass B : public C {\n public:\n"
                "  explicit B(int a)\n      : a_{a}, b_(a) {\n    f();\n  }\n"
                "  int a() const { return a_; }\n  int a_{0};\n};\n"
                "constexpr int kTable[] = {1,\n2};\nenum class E : int { kA };\n"
                "template <class T, class U = std::vector<T>>\nauto F(T t) -> int {\n"
                "  auto g = [] { return 1; };\n  if (t) {\n  }\n}\n}  // namespace a\n")
        self.assertEqual([(f, n) for f, n, _ in check_sizes.functions(code)],
                         [(6, 4), (10, 1), (16, 6)])

    def test_a_class_is_not_a_function(self):
        for head in ("class alignas(64) A", "struct [[nodiscard]] A final : B<int(int)>", "enum class E"):
            with self.subTest(head):
                self.assertEqual(check_sizes.functions(head + " {\n};\n"), [])

    def test_limits(self):
        def found(text):
            return problems(check_sizes, {"src/base/a.cc": text})

        self.assertEqual(found("void F() {\n" + self.code(98) + "}\n"), [])
        self.assertEqual(len(found("void F() {\n" + self.code(99) + "}\n")), 1)
        self.assertEqual(len(found('TEST_CASE("a") {\n' + self.code(99) + "}\n")), 1)
        self.assertEqual(found("int a;\n" * 800), [])
        self.assertEqual(len(found("int a;\n" * 801)), 1)

    def test_braces_that_do_not_pair_are_said(self):
        self.assertEqual(len(problems(check_sizes, {"src/a.h": "void F() {\n"})), 1)
        self.assertEqual(len(problems(check_sizes, {"src/a.h": "}\n"})), 1)


class Texts(unittest.TestCase):
    licence = "// SPDX-License-Identifier: Apache-2.0\n"

    def test_format(self):
        style = {".clang-format": "BasedOnStyle: Google\n"}
        self.assertEqual(problems(check_format, {**style, "src/a.cc": "int a = 1;\n"}), [])
        found = problems(check_format, {**style, "src/a.cc": "int  a=1;\n"})
        self.assertEqual(len(found), 1)
        self.assertIn("src/a.cc:1", found[0])

    def test_spdx(self):
        good = {"a.cc": self.licence, "b.sh": "#!/bin/sh\n" + self.licence.replace("//", "#"),
                "note.md": "text\n", "tests/data/x.proto": ""}
        self.assertEqual(problems(check_spdx, good), [])
        self.assertEqual(len(problems(check_spdx, {"a.cc": "\n" + self.licence})), 1)
        self.assertEqual(len(problems(check_spdx, {".ci/run": "#!/bin/sh\nexit\n"})), 1)

    def test_paths(self):
        for bad in ("cd /" + "home/someone/x", '"/' + "work/main", "see .." + "/shared/x.md",
                    "http" + "://mirror.corp.test/debian", "pip --index" + "-url x"):
            with self.subTest(bad):
                self.assertEqual(len(check_paths.judge(bad)), 1)
        for good in ("https://arxiv.org/abs/2602.00748", "http://localhost:9090/", "a/work/b",
                     "${HOME}/work/x", "/run/hmm/hmm.sock", "http://prometheus:9090"):
            with self.subTest(good):
                self.assertEqual(check_paths.judge(good), [])


class Registered(unittest.TestCase):
    def test_only_what_a_command_runs_counts(self):
        with tree_of({"tests/a_test.cc": "", "tests/b_test.cc": "", "tests/c_test.sh": "",
                      "tests/d_test.sh": ""}) as root:
            names = lintlib.all_files(root)
            found = check_tests_registered.unregistered(
                root, names,
                {"/b/a": {f"{root}/tests/a_test.cc"}, "/b/unrun": {f"{root}/tests/b_test.cc"}},
                [["/b/a"], ["/bin/bash", f"{root}/tests/c_test.sh"]])
        self.assertEqual([f.split(":")[0] for f in found], ["tests/b_test.cc", "tests/d_test.sh"])

    def test_commands_are_read_from_the_build_tree(self):
        top = "subdirs" + '("tests")\n'
        with tree_of({"CTestTestfile.cmake": top,
                      "tests/CTestTestfile.cmake": 'add_test(a_test "/b/a_test" "-x")\n'
                                                   'add_test([=[b c]=] "/bin/sh" "/t/b_test.sh")\n',
                      "stale/CTestTestfile.cmake": 'add_test(old "/b/old")\n'}) as build:
            self.assertEqual(check_tests_registered.ctest_tests(build),
                             [("a_test", ["/b/a_test", "-x"]),
                              ("b c", ["/bin/sh", "/t/b_test.sh"])])

    def test_what_is_switched_off_is_found(self):
        case = 'TEST_CASE("a' + '", "[x][.slow]") {}\n'
        for name, bad in (("tests/a_test.cc", case), ("tests/a_test.cc", "\n// TEST_CASE" + "(x)\n"),
                          ("tests/a_test.cc", "#if" + " 0\n"),
                          ("tests/unit/a_test.cc", "std::this_thread::sleep" + "_for(1s);\n"),
                          ("tests/CMakeLists.txt", "  # add_test" + "(NAME x)\n"),
                          ("tests/CMakeLists.txt", "set(x DISABLED" + " TRUE)\n")):
            with self.subTest(bad):
                self.assertEqual(len(check_tests_registered.switched_off(name, bad)), 1)
        good = 'TEST_CASE("a", "[x]") { f("[.]"); }\n// A TEST_CASE of its own.\n'
        self.assertEqual(check_tests_registered.switched_off("tests/a_test.cc", good), [])


class Guarantees(unittest.TestCase):
    programs = {"a_test": [("case 1: it holds", "[x][case 1]"), ("other", "")],
                "b_test": [("case 2: it ends", "[case 2]")], "stress_1": [], "lint_x": []}
    good = """
| promise | test |
|---|---|
| it holds | `a_test` "it holds", `stress_*`, `fuzz_in`, cases 1 and 2 |

| # | what is done | test |
|---|---|---|
| 1 | this | `a_test`; (`lint_x`) |
| 2 | that | `b_test` |

| | |
|---|---|
| `nothing` | of this is looked at |
"""

    def found(self, old="", new="", programs=None):
        with tree_of({"tests/fuzz/fuzz_in.cc": ""}) as root:
            return check_guarantees.judge(root, self.good.replace(old, new) if old else self.good,
                                          {**self.programs, **(programs or {})})

    def test_a_true_page_passes(self):
        self.assertEqual(self.found(), [])

    def test_what_is_not_there_is_found(self):
        for old, new in (("`stress_*`", "`stres_*`"), ("fuzz_in", "fuzz_out"),
                         ("it holds\",", "it held\","), ("1 and 2", "1 and 3"),
                         ("`b_test`", "none")):
            with self.subTest(new):
                self.assertNotEqual(self.found(old, new), [])

    def test_tags_and_rows_go_together(self):
        self.assertIn("has no TEST_CASE tagged", self.found("`b_test`", "`b_test`, `a_test`")[0])
        self.assertIn("is not named", self.found(programs={"c_test": [("c", "[case 2]")]})[0])
        self.assertIn("is no row", self.found(programs={"c_test": [("c", "[case 3]")]})[0])

    def test_names_and_tags_are_read_from_sources(self):
        code = 'TEST_CASE("a' + '; \\"b\\" " "c",\n  "[x][case 7]") {}\n// TEST_CASE' + '("d", "[e]")\n'
        self.assertEqual(check_guarantees.test_cases(code), [('a; \\"b\\" c', "[x][case 7]")])


class InstalledHeaders(unittest.TestCase):
    def found(self, text):
        return problems(check_installed_headers,
                        {"client/include/hmm/a.h": text, "client/include/hmm/b.h": "",
                         "src/base/u.h": ""}, compiler="c++")

    def test_only_what_is_installed_may_be_pulled_in(self):
        self.assertEqual(self.found('#include "hmm/b.h"\n#include <vector>\n'), [])
        self.assertTrue(self.found("#include <grpc/grpc.h>\n"))
        self.assertTrue(self.found('#include "base/u.h"\n'))
        self.assertTrue(self.found('#include "../../../src/base/u.h"\n'))


class DocSnippets(unittest.TestCase):
    def found(self, page):
        return problems(check_doc_snippets, {"docs/client.md": page, "README.md": "```cpp\nint x;\n```\n"},
                        compiler="c++")

    def test_the_snippets_of_a_page_are_one_file(self):
        self.assertEqual(self.found("A\n```cpp\nint f();\n```\nB\n```cpp\nint g() { return f(); }\n```\n"),
                         [])

    def test_an_error_is_told_with_the_line_of_the_page(self):
        found = self.found("A\n\n```cpp\nint f();\nint g() { return h(); }\n```\n")
        self.assertEqual(len(found), 1)
        self.assertIn("docs/client.md:5:", found[0])
        self.assertEqual(len(self.found("no snippet\n")), 1)


class ErrorsDoc(unittest.TestCase):
    source = ('#define HMM_REASONS(X) \\\n  X(Full, "FULL", "No room; wait.") \\\n'
              '  X(Io, "IO", \\\n    "A call \\"x|y\\" " \\\n    "failed.")\n\nenum class Reason {};\n')

    def found(self, page, source=None):
        return problems(check_errors_doc,
                        {"src/base/status.h": source or self.source, "docs/errors.md": page})

    def test_the_macro_is_read(self):
        self.assertEqual(gen_errors_doc.reasons(self.source),
                         [("Full", "FULL", "No room; wait."), ("Io", "IO", 'A call "x|y" failed.')])

    def test_only_what_is_generated_passes(self):
        page = gen_errors_doc.page(self.source)
        self.assertIn('| `IO` | A call "x\\|y" failed. |\n', page)
        self.assertEqual(self.found(page), [])
        for bad in (page.replace("wait", "hope"), page + "more\n", page.replace("| `IO`", "| `OI`"),
                    ""):
            with self.subTest(bad[-40:]):
                self.assertEqual(len(self.found(bad)), 1)

    def test_an_entry_that_cannot_be_read_is_an_error(self):
        page = gen_errors_doc.page(self.source)
        for bad in (self.source.replace("X(Io,", "Y(Io,"), self.source.replace('"IO"', '"FULL"'),
                    self.source.replace("HMM_REASONS", "REASONS")):
            with self.subTest(bad):
                self.assertIn("src/base/status.h:1", self.found(page, bad)[0])

    def test_a_missing_page_is_an_error(self):
        self.assertEqual(len(problems(check_errors_doc, {"src/base/status.h": self.source})), 1)


class Units(unittest.TestCase):
    shipped = Path(__file__).resolve().parents[2] / "deploy/hmmd.service"

    def test_a_key_that_systemd_does_not_know_is_found(self):
        text = self.shipped.read_text()
        self.assertEqual(check_units.judge("a.service", text), [])
        self.assertTrue(check_units.judge("a.service", text.replace("UMask=", "Umaks=")))

    def test_an_open_service_is_found(self):
        found = check_units.judge("a.service", "[Service]\nExecStart=/usr/bin/hmmd\n")
        self.assertTrue(any("exposed" in f for f in found), found)

    def test_private_users_is_found(self):
        text = self.shipped.read_text() + "\nPrivateUsers=yes\n"
        self.assertTrue(any("PrivateUsers" in f for f in check_units.judge("a.service", text)))


class Registration(unittest.TestCase):
    def test_finds_what_registers_memory(self):
        found = check_registration.judge("a.cc", "x();\nio_uring_register_buffers(&r, v, 1);\n")
        self.assertEqual(found, ["a.cc:2: io_uring_register_buffers: arena memory is never "
                                 "registered"])

    def test_lets_the_rest_pass(self):
        self.assertEqual(check_registration.judge(
            "a.cc", "// io_uring_register_buffers is not for us\nRegister(verb);\n"), [])


if __name__ == "__main__":
    unittest.main()
