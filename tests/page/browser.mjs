// SPDX-License-Identifier: Apache-2.0
// What the page tests share: arguments, hmmctl, and a browser that reports all that goes wrong.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const { values } = parseArgs({
  options: {
    hmmctl: { type: "string" },
    packages: { type: "string" },  // the folder of node_modules
    out: { type: "string" },       // screenshots, pages and figures go here and stay
  },
});
for (const name of ["hmmctl", "packages", "out"]) assert.ok(values[name], `--${name} is missing`);

const packages = createRequire(path.resolve(values.packages, "package.json"));
const { chromium } = packages("playwright-core");
export const axe = readFileSync(packages.resolve("axe-core/axe.min.js"), "utf8");
export const modules = path.resolve(values.packages, "node_modules");
export const root = fileURLToPath(new URL("../..", import.meta.url));
export const out = path.resolve(values.out);
mkdirSync(out, { recursive: true });

const DRAWN_WITHIN_MS = 60_000;  // a bound of the test; how long it may take is asserted elsewhere

export function outFile(name) {
  return path.join(out, name);
}

// What hmmctl answers; it has to end with `code`.
export function hmmctl(words, code = 0) {
  const run = spawnSync(values.hmmctl, words, { encoding: "utf8", maxBuffer: 1 << 28 });
  assert.equal(run.status, code, `hmmctl ${words.join(" ")}\n${run.stdout}${run.stderr}`);
  return run.stdout;
}

// A file that goes with the test's end.
const scratch = mkdtempSync(path.join(tmpdir(), "hmm-page."));
process.on("exit", () => rmSync(scratch, { recursive: true, force: true }));
export function scratchFile(name, text) {
  const file = path.join(scratch, name);
  if (text !== undefined) writeFileSync(file, text);
  return file;
}

export async function startBrowser() {
  const where = execFileSync("sh", ["-c", "command -v chromium"], { encoding: "utf8" });
  // Root, as in a container, has no sandbox of Chromium's; the pages are our own.
  const flags = process.getuid() === 0 ? ["--no-sandbox"] : [];
  return chromium.launch({
    executablePath: where.trim(),
    args: [...flags, "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
           "--disable-background-networking", "--disable-component-update",
           "--disable-dev-shm-usage"],  // containers have little of it
  });
}

// Opens `file` and waits until it has drawn. `page.troubles` are console messages, errors, dialogs
// and requests for anything but the file: to be empty at the end.
export async function openReport(browser, file, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.troubles = [];
  const url = `file://${file}`;
  page.on("console", (message) => page.troubles.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => page.troubles.push(error.stack));
  page.on("dialog", (dialog) => {
    page.troubles.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on("request", (request) => {
    if (request.url() !== url && !request.url().startsWith("data:")) {
      page.troubles.push(`request: ${request.url()}`);
    }
  });
  await page.goto(url);
  await page.waitForSelector("html[data-drawn]", { state: "attached", timeout: DRAWN_WITHIN_MS });
  return page;
}

export async function closeReport(page) {
  assert.deepEqual(page.troubles, []);
  await page.context().close();
}

// How many pixels of a chart's canvas have the colour that the style sheet calls `name`. Read from
// a copy: a canvas that is read often draws another way.
export async function pixelsOf(page, name, chart = 0) {
  return page.evaluate(([name, chart]) => {
    const canvas = document.querySelectorAll(".chart canvas")[chart];
    const copy = new OffscreenCanvas(canvas.width, canvas.height + 1)
      .getContext("2d", { willReadFrequently: true });
    const style = getComputedStyle(document.documentElement);
    copy.fillStyle = style.getPropertyValue(`--${name}`).trim();
    copy.fillRect(0, canvas.height, 1, 1);
    copy.drawImage(canvas, 0, 0);
    const data = new Uint32Array(
      copy.getImageData(0, 0, canvas.width, canvas.height + 1).data.buffer);
    const want = data[canvas.width * canvas.height];
    let count = 0;
    for (let i = 0; i < canvas.width * canvas.height; ++i) count += data[i] === want ? 1 : 0;
    return count;
  }, [name, chart]);
}

// Waits until a chart has more than `least` pixels of a colour: a page hears of a new scheme or width
// by events of a later frame than the one in which its style changes.
export async function drawn(page, name, { chart = 0, least = 100, timeout = 10_000 } = {}) {
  const end = Date.now() + timeout;
  for (let count = 0; ;) {
    if ((count = await pixelsOf(page, name, chart)) > least) return count;
    if (Date.now() > end) {
      throw new Error(`chart ${chart}: ${count} pixels of ${name} after ${timeout} ms`);
    }
    await page.evaluate(() => new Promise(requestAnimationFrame));
  }
}

// How well two colours of the style sheet are told apart (WCAG's contrast ratio).
export async function contrast(page, one, other) {
  const luminance = (name) => page.evaluate((name) => {
    const hex = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255)
      .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }, name);
  const [low, high] = [await luminance(one), await luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

// What axe-core finds against WCAG 2.2 AA, and landmarks of one name, a line each.
export async function accessibilityFaults(page) {
  await page.evaluate(axe);
  const result = await page.evaluate(() => globalThis.axe.run(document, {
    runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"],
    rules: { "landmark-unique": { enabled: true } },
  }));
  return result.violations.map((fault) =>
    `${fault.id}: ${fault.help}: ${fault.nodes.map((node) => node.target.join(" ")).join(", ")}`);
}

// The columns of the table of moved tensors, by title.
export async function column(page, title, table = 0) {
  return page.evaluate(([title, table]) => {
    const moved = document.querySelectorAll("table.moved")[table];
    const titles = [...moved.tHead.rows[0].cells].map((cell) => cell.textContent);
    const at = titles.indexOf(title);
    return [...moved.tBodies[0].rows].map((row) => row.cells[at].textContent);
  }, [title, table]);
}
