// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/plan_report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "client/ctl/plan_report_data.h"
#include "client/ctl/plan_words.h"
#include "client/ctl/table.h"
#include "graph/file_error.h"

namespace hmm::ctl {
namespace {

using plan::Plan;

// Text for HTML, inside an element or an attribute's double quotes. Bytes that a page may not have
// read as U+FFFD in the browser, as do names that are no UTF-8.
std::string Html(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"},
                                    {"<", "&lt;"},
                                    {">", "&gt;"},
                                    {"\"", "&quot;"},
                                    {"'", "&#39;"},
                                    {absl::string_view("\0", 1), "&#xfffd;"}});
}

std::string HeadingHtml(const PlanContext& context, const Plan& plan) {
  return absl::StrCat("<p class=\"of\">plan of <b>", Html(graph::Shown(context.graph.name)),
                      "</b> on <b>", Html(context.machine.name), "</b></p>\n<h1 class=\"",
                      std::string(plan::VerdictName(plan.verdict)), "\">",
                      Html(VerdictText(context.graph, plan)), "</h1>\n");
}

std::string FiguresHtml(const PlanContext& context, const Plan& plan) {
  std::string out = "<dl>\n";
  for (const Figure& figure : FiguresOf(context.graph, plan)) {
    absl::StrAppend(&out, "<div><dt>", Html(figure.name), "</dt><dd>", Html(figure.text),
                    "</dd></div>\n");
  }
  const std::string ceilings = CeilingsText(context.graph, plan);
  if (!ceilings.empty()) {
    absl::StrAppend(&out, "<div><dt>ceilings</dt><dd>", Html(ceilings), "</dd></div>\n");
  }
  return out + "</dl>\n";
}

// The planners' figures side by side, each with its share of the longest step as a bar.
std::string CompareHtml(const std::vector<Plan>& plans) {
  double longest = 0;
  for (const Plan& plan : plans) longest = std::max(longest, plan.step_us);
  std::string out =
      "<section aria-labelledby=\"compare\"><h2 id=\"compare\">The planners side by side</h2>\n"
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Figures of each planner\">"
      "<table class=\"compare\"><thead><tr><th scope=\"col\">planner</th>"
      "<th scope=\"col\">verdict</th><th scope=\"col\" class=\"n\">exposed</th>"
      "<th scope=\"col\" class=\"n\">of compute</th><th scope=\"col\" class=\"n\">step</th>"
      "<th scope=\"col\">compute and exposed</th><th scope=\"col\" class=\"n\">peak</th>"
      "<th scope=\"col\" class=\"n\">moved</th></tr></thead><tbody>\n";
  for (const Plan& plan : plans) {
    absl::StrAppend(&out, "<tr><th scope=\"row\">", Html(plan.planner), "</th><td>",
                    std::string(plan::VerdictName(plan.verdict)), "</td>");
    if (plan.verdict == plan::Verdict::kInfeasible) {
      absl::StrAppend(&out, "<td colspan=\"6\">finds no plan</td></tr>\n");
      continue;
    }
    const double whole = longest > 0 ? longest : 1;
    absl::StrAppendFormat(
        &out,
        "<td class=\"n\">%s</td><td class=\"n\">%s</td><td class=\"n\">%s</td><td>"
        "<svg class=\"bar\" viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" "
        "aria-hidden=\"true\"><rect class=\"compute\" width=\"%.2f\" height=\"10\"/>"
        "<rect class=\"exposed\" x=\"%.2f\" width=\"%.2f\" height=\"10\"/></svg></td>"
        "<td class=\"n\">%s</td><td class=\"n\">%s</td></tr>\n",
        MicrosText(plan.stall_us), ShareText(plan.stall_us, plan.compute_us),
        MicrosText(plan.step_us), 100 * plan.compute_us / whole, 100 * plan.compute_us / whole,
        100 * plan.stall_us / whole, FormatBytes(plan.peak_bytes), FormatBytes(plan.moved_bytes));
  }
  return out + "</tbody></table></div></section>\n";
}

std::string FootHtml(const PlanContext& context) {
  std::string out = absl::StrCat(
      "<p>machine ", Html(MachineText(context.machine)),
      "</p>\n<p>durations: ", Html(DurationsText(context.graph, context.roofline_ops)), "</p>\n");
  const std::string unknown = UnknownText(context.graph);
  if (!unknown.empty()) absl::StrAppend(&out, "<p>", Html(unknown), "</p>\n");
  return out;
}

}  // namespace

absl::StatusOr<std::string> FormatPlanReport(const PlanContext& context,
                                             const std::vector<Plan>& plans) {
  const absl::StatusOr<std::string> data = ReportData(context, plans);
  if (!data.ok()) return data.status();
  const Plan& first = plans.front();
  const std::string title = absl::StrCat(
      std::string(plan::VerdictName(first.verdict)), ": ", graph::Shown(context.graph.name), " in ",
      FormatBytes(first.budget_bytes), plans.size() > 1 ? ", planners compared" : "");
  // What is put in is not looked through again, so no name can stand for a part of the page.
  return absl::StrReplaceAll(
      absl::string_view(kReportPage.data(), kReportPage.size()),
      {{"<!--hmm:title-->", Html(title)},
       {"<!--hmm:heading-->", HeadingHtml(context, first)},
       {"<!--hmm:figures-->", FiguresHtml(context, first)},
       {"<!--hmm:compare-->", plans.size() > 1 ? CompareHtml(plans) : std::string()},
       {"<!--hmm:foot-->", FootHtml(context)},
       {"<!--hmm:data-->", *data}});
}

absl::Status WritePlanReport(const std::string& path, const PlanContext& context,
                             const std::vector<Plan>& plans) {
  const absl::StatusOr<std::string> page = FormatPlanReport(context, plans);
  if (!page.ok()) return page.status();
  return graph::WriteFileBytes(path, *page);
}

}  // namespace hmm::ctl
