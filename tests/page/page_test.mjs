// SPDX-License-Identifier: Apache-2.0
// `hmmctl plan --report` in a browser, as people use it: looked at, zoomed, sorted, searched, by
// mouse, by keyboard, on a narrow screen, dark and light. Screenshots stay in --out; those that
// begin with first-plan are the pictures of docs/first-plan.md (docs/images).
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";

import {
  accessibilityFaults, closeReport, column, contrast, drawn, hmmctl, modules, openReport, outFile,
  pixelsOf, root, scratchFile, startBrowser,
} from "./browser.mjs";

let browser;
let graph;

before(async () => {
  browser = await startBrowser();
  graph = scratchFile("train.pb");
  hmmctl(["graph", "llama", "--layers", "6", "--hidden", "256", "--heads", "4", "--kv-heads", "2",
          "--ffn", "1024", "--vocab", "2000", "--tokens", "512", "--phase", "train",
          "--out", graph]);
});
after(() => browser.close());

// A plan that moves and exposes something; what the planner makes of it is for other tests.
const PLAN = ["--hbm", "60%", "--steps", "20000"];

function report(name, words = []) {
  const file = outFile(name);
  hmmctl(["plan", graph, ...PLAN, "--report", file, ...words]);
  return file;
}

function rangeOf(page) {
  return page.textContent("#range");
}

test("the chart library in the page is the one that npm has", () => {
  for (const [ours, theirs] of [["uPlot.iife.min.js", "dist/uPlot.iife.min.js"],
                                ["uPlot.min.css", "dist/uPlot.min.css"],
                                ["uPlot.LICENSE", "LICENSE"]]) {
    const kept = path.join(root, "client/ctl/report/third_party", ours);
    assert.deepEqual(readFileSync(kept), readFileSync(path.join(modules, "uplot", theirs)), ours);
  }
});

test("curve, budget, peaks and timeline are drawn; the verdict stands at the top", async () => {
  const file = report("train.html");
  const said = JSON.parse(hmmctl(["plan", graph, ...PLAN, "-o", "json"]));
  const page = await openReport(browser, file);
  assert.match(await page.textContent("h1"), /^planned: fits with the moves given; .* are exposed/);
  assert.match(await page.title(), /^planned: "llama-train" in 74\.8 MiB$/);
  assert.match(await page.textContent("dl"), new RegExp(`\\(${said.budget_bytes} bytes\\)`));
  for (const name of ["before", "after", "budget"]) {
    assert.ok(await pixelsOf(page, name, 0) > 100, `the memory chart has no line ${name}`);
  }
  for (const name of ["compute", "idle", "out", "in"]) {
    assert.ok(await pixelsOf(page, name, 1) > 500, `the timeline has no boxes ${name}`);
  }
  await closeReport(page);
});

test("zooming: buttons, keys, dragging, and back to the whole step", async () => {
  const page = await openReport(browser, outFile("train.html"));
  const whole = await rangeOf(page);
  assert.match(whole, /^the whole step, /);
  const busy = await pixelsOf(page, "compute", 1);
  await page.click("button[data-do=in]");
  assert.match(await rangeOf(page), /^1\.07\d* ms to 3\.2\d* ms of 4\.28/);
  assert.notEqual(await pixelsOf(page, "compute", 1), busy);
  await page.click("button[data-do=later]");
  await page.click("button[data-do=earlier]");
  await page.click("button[data-do=out]");
  assert.equal(await rangeOf(page), whole);
  assert.ok(await page.isDisabled("button[data-do=out]"));
  // Dragging over one chart zooms both.
  const box = await page.locator(".u-over").nth(0).boundingBox();
  await page.mouse.move(box.x + box.width * 0.25, box.y + 50);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.5, box.y + 60, { steps: 4 });
  await page.mouse.up();
  assert.match(await rangeOf(page), /^1\.07\d* ms to 2\.14\d* ms of /);
  const scales = await page.evaluate(() => [...document.querySelectorAll(".chart .u-over")].length);
  assert.equal(scales, 2);
  await page.screenshot({ path: outFile("train-zoomed.png") });
  await page.locator(".u-over").nth(1).dblclick();
  assert.equal(await rangeOf(page), whole);
  // Keys, on a chart that has the focus.
  await page.locator(".chart").nth(1).focus();
  await page.keyboard.press("+");
  await page.keyboard.press("+");
  const near = await rangeOf(page);
  await page.keyboard.press("ArrowRight");
  assert.notEqual(await rangeOf(page), near);
  await page.keyboard.press("Home");
  assert.equal(await rangeOf(page), whole);
  for (let i = 0; i < 60; ++i) await page.keyboard.press("+");  // there is a nearest
  assert.match(await rangeOf(page), / to /);
  await closeReport(page);
});

test("what happens when is told: pointing, and n and p from event to event", async () => {
  const page = await openReport(browser, outFile("train.html"));
  await page.locator(".u-over").nth(1).scrollIntoViewIfNeeded();
  const box = await page.locator(".u-over").nth(1).boundingBox();
  await page.mouse.move(box.x + box.width * 0.1, box.y + 20);
  const said = await page.textContent(".readout");
  assert.match(said, /^at 42[89] us\nHBM: with the plan .*, without .*\ncompute: op \d+ /);
  await page.locator(".chart").nth(1).focus();
  await page.keyboard.press("n");
  const next = await page.textContent(".readout");
  await page.keyboard.press("n");
  assert.notEqual(await page.textContent(".readout"), next);
  await page.keyboard.press("p");
  assert.equal(await page.textContent(".readout"), next);
  await closeReport(page);
});

test("the table: three factors, sorted, searched, and a tensor picked", async () => {
  const page = await openReport(browser, outFile("train.html"));
  const names = await column(page, "tensor");
  assert.equal(names.length, 15);
  for (const factor of ["uses", "recompute", "bring back", "of compute"]) {
    assert.ok((await column(page, factor)).every((text) => text !== ""), factor);
  }
  // The figures are those of `plan explain`.
  const why = JSON.parse(hmmctl(["plan", "explain", names[0], graph, ...PLAN, "-o", "json"]));
  assert.equal((await column(page, "uses"))[0], String(why.uses_per_step));
  assert.equal((await column(page, "bring back"))[0], `${Math.round(why.in_us)} us`);

  const sizes = async () => (await column(page, "size")).map((text) => {
    const [number, unit] = text.split(" ");
    return Number(number) * 1024 ** ["B", "KiB", "MiB", "GiB"].indexOf(unit);
  });
  const heading = page.getByRole("columnheader", { name: "size" });
  for (const [direction, sign] of [["descending", -1], ["ascending", 1]]) {
    await heading.getByRole("button").click();
    assert.equal(await heading.getAttribute("aria-sort"), direction);
    const shown = await sizes();
    assert.deepEqual(shown, [...shown].sort((a, b) => sign * (a - b)));
    assert.notEqual(shown[0], shown.at(-1));
  }
  await page.getByRole("columnheader", { name: "tensor" }).getByRole("button").click();
  assert.deepEqual(await column(page, "tensor"), [...names].sort());

  await page.getByLabel("Search tensors and ops").fill("FFN.up layers.0");
  assert.deepEqual(await column(page, "tensor"),
                   [...names].sort().filter((name) => /layers\.0\.ffn\.up/.test(name)));
  assert.match(await page.textContent(".tools output"), /^rows 1 to \d+ of \d+ found, of 15$/);
  await page.getByLabel("Search tensors and ops").fill("no such tensor");
  assert.equal(await page.textContent(".tools output"), "0 found, of 15 tensors");
  await page.getByLabel("Search tensors and ops").fill("");

  assert.equal(await pixelsOf(page, "picked", 1), 0);
  await page.getByRole("button", { name: names[0], exact: true }).click();
  assert.ok(await pixelsOf(page, "picked", 1) > 200, "a picked tensor's moves are not marked");
  assert.match(await rangeOf(page), / to /);
  await page.screenshot({ path: outFile("train-picked.png") });
  await closeReport(page);
});

test("everything can be reached and used by keyboard alone", async () => {
  const page = await openReport(browser, outFile("train.html"));
  const reached = [];
  for (let i = 0; i < 60; ++i) {
    await page.keyboard.press("Tab");
    const [what, seen] = await page.evaluate(() => {
      const at = document.activeElement;
      const shown = getComputedStyle(at).outlineStyle !== "none";
      return [at.dataset.do ?? at.className ?? at.tagName, at === document.body || shown];
    });
    assert.ok(seen, `no focus is seen on ${what}`);
    reached.push(what || await page.evaluate(() => document.activeElement.tagName));
    if (what === "in") {
      const whole = await rangeOf(page);
      await page.keyboard.press("Enter");
      assert.notEqual(await rangeOf(page), whole);
    }
  }
  for (const what of ["in", "out", "whole", "chart", "scroll", "INPUT", "BUTTON"]) {
    assert.ok(reached.includes(what), `${what} is not reached: ${reached}`);
  }
  await closeReport(page);
});

test("from 320 pixels wide, dark and light, without a fault that axe-core finds", async () => {
  const backs = new Set();
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [320, 1280]) {
      const page = await openReport(browser, outFile("train.html"),
                                    { viewport: { width, height: 900 }, colorScheme });
      const beyond = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(beyond <= 0, `${width} px wide, the page is ${beyond} px wider`);
      for (const name of ["before", "after", "budget"]) {
        assert.ok(await pixelsOf(page, name, 0) > 50, `${colorScheme} ${width}: no ${name}`);
      }
      backs.add(await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
      assert.deepEqual(await accessibilityFaults(page), [], `${colorScheme} ${width}`);
      // What is painted, which axe-core does not see: names on boxes, lines and boxes on the page.
      for (const box of ["compute", "recompute", "out", "in", "flash-out", "flash-in", "picked"]) {
        assert.ok(await contrast(page, box, "on-span") >= 4.5, `${colorScheme}: a name on ${box}`);
      }
      for (const text of ["before", "after", "muted", "fore", "link"]) {
        assert.ok(await contrast(page, text, "back") >= 4.5, `${colorScheme}: text ${text}`);
      }
      for (const line of ["budget", "compute", "out", "in", "picked"]) {
        assert.ok(await contrast(page, line, "back") >= 3, `${colorScheme}: ${line}`);
      }
      await page.screenshot({ path: outFile(`train-${width}-${colorScheme}.png`), fullPage: true });
      await closeReport(page);
    }
  }
  assert.equal(backs.size, 2, "dark and light have one background");
});

test("charts follow the width and the scheme while the page is open", async () => {
  const page = await openReport(browser, outFile("train.html"), { colorScheme: "light" });
  await page.emulateMedia({ colorScheme: "dark" });
  await page.waitForFunction(() =>
    getComputedStyle(document.body).backgroundColor !== "rgb(255, 255, 255)");
  await drawn(page, "after");
  await page.setViewportSize({ width: 500, height: 800 });
  await page.waitForFunction(() => document.querySelector(".chart canvas").clientWidth <= 500);
  await drawn(page, "after");
  await closeReport(page);
});

test("the planners side by side", async () => {
  const page = await openReport(browser, report("compare.html", ["--compare"]));
  const rows = await page.locator("table.compare tbody tr th").allTextContents();
  assert.equal(rows.length, 7);
  assert.equal(rows[0], "hmm");
  assert.equal(await page.locator("p.predicted").count(), 1, "one word on what is drawn");
  const titles = await page.locator(".panel h2").allTextContents();
  assert.deepEqual(titles.map((title) => title.split(":")[0]), rows);
  const charts = await page.locator(".chart canvas").count();
  assert.ok(charts >= 2 * 5 + 2, `${charts} charts`);
  for (let i = 0; i < charts; ++i) {
    const drawn = await pixelsOf(page, "before", i) + await pixelsOf(page, "compute", i);
    assert.ok(drawn > 100, `chart ${i} is empty`);
  }
  // One zoom for all, so that steps compare.
  const first = await pixelsOf(page, "compute", 1);
  await page.locator(".chart").nth(charts - 1).focus();
  await page.keyboard.press("+");
  assert.notEqual(await pixelsOf(page, "compute", 1), first);
  await page.keyboard.press("Home");
  for (const moved of await page.getByText(/^Moved tensors: /).all()) await moved.click();
  assert.ok((await column(page, "tensor", 0)).length > 0);
  assert.deepEqual(await accessibilityFaults(page), []);
  await page.screenshot({ path: outFile("compare.png"), fullPage: true });
  await closeReport(page);
});

test("no plan: the page says so, and shows what does not fit", async () => {
  const file = outFile("infeasible.html");
  hmmctl(["plan", graph, "--hbm", "1MiB", "--report", file], 1);
  const page = await openReport(browser, file);
  assert.match(await page.textContent("h1"), /^infeasible: op \d+ .* is short by 6\.8 MiB/);
  assert.ok(await pixelsOf(page, "before", 0) > 100);
  assert.ok(await pixelsOf(page, "budget", 0) > 100);
  assert.equal(await page.locator("table.moved").count(), 0);
  assert.deepEqual(await accessibilityFaults(page), []);
  await page.screenshot({ path: outFile("infeasible.png"), fullPage: true });
  await closeReport(page);
});

test("names that try to be markup, script, or parts of the page stay names", async () => {
  const names = ["</script><script>alert(1)</script>", "<img src=x onerror=alert(2)>",
                 "<!--hmm:data-->", "\\\"'; alert(3) //", "<!--<script>", "a\\342\\200\\250b&amp;"];
  const shown = ["</script><script>alert(1)</script>", "<img src=x onerror=alert(2)>",
                 "<!--hmm:data-->", "\"'; alert(3) //", "<!--<script>", "a\u2028b&amp;", "weight"];
  const last = names.length;
  const text = [
    'name: "</title><script>alert(0)</script>"',
    ...names.map((name, i) =>
      `ops { name: "op ${name}" type: "${name}" writes: [${i}] microseconds: 900 }`),
    ...names.map((name, i) =>
      `ops { name: "use ${name}" reads: [${i}, ${last}] microseconds: 900 }`),
    ...names.map((name) =>
      `storages { name: "${name}" bytes: 4194304 kind: TENSOR_KIND_ACTIVATION }`),
    'storages { name: "weight" bytes: 1024 kind: TENSOR_KIND_WEIGHT persistent: true }',
  ].join("\n");
  const file = outFile("hostile.html");
  hmmctl(["plan", scratchFile("hostile.pbtxt", text), "--hbm", "12MiB", "--report", file]);
  const page = await openReport(browser, file);
  assert.equal(await page.title(), "planned: \"</title><script>alert(0)</script>\" in 12 MiB");
  assert.equal(await page.locator("img").count(), 0);
  assert.equal(await page.evaluate(() => document.scripts.length), 1);  // the data is taken out
  const listed = await column(page, "tensor");
  assert.ok(listed.length > 0);
  assert.deepEqual(listed.filter((name) => !shown.includes(name)), []);
  await page.locator(".chart").nth(1).focus();
  for (let i = 0; i < 12; ++i) await page.keyboard.press("n");
  assert.match(await page.textContent(".readout"), /compute: op \d+ (op|use) /);
  await closeReport(page);
});

test("the page's policy lets no other script run", async () => {
  const page = await openReport(browser, outFile("train.html"));
  await page.evaluate(() => {
    const script = document.createElement("script");
    script.textContent = "var hit = 1";
    document.body.append(script);
  });
  assert.equal(await page.evaluate(() => typeof hit), "undefined");
  assert.match(page.troubles.splice(0).join(), /Content Security Policy/);
  await closeReport(page);
});

test("pictures for docs/first-plan.md", async () => {
  const model = path.join(root, "tests/data/graphs/onnx/light_resnet50.onnx");
  const shot = async (name, words, viewport, act = async () => {}) => {
    const file = outFile(`${name}.html`);
    hmmctl(["plan", model, "--hbm", "60%", "--report", file, ...words]);
    // Without motion, so that no picture is of a page that still scrolls.
    const page = await openReport(browser, file, { viewport, reducedMotion: "reduce" });
    await act(page);
    await page.screenshot({ path: outFile(`${name}.png`) });
    await closeReport(page);
  };
  await shot("first-plan", [], { width: 1000, height: 1160 });
  await shot("first-plan-gh200", ["--machine", "gh200"], { width: 1000, height: 900 },
             async (page) => {
               await page.locator("table.moved tbody button").nth(0).click();
               await page.locator("#zoom").evaluate((bar) => bar.scrollIntoView());
             });
  await shot("first-plan-compare", ["--compare"], { width: 1100, height: 760 });
});
