// SPDX-License-Identifier: Apache-2.0
// From the document's columns of differences (client/ctl/plan_report.h) to typed arrays in
// microseconds and bytes.

const MOVE_KINDS = ["SwapOut", "SwapIn", "Drop", "Recompute"];

function sums(differences, scale) {
  const out = new Float64Array(differences.length);
  let sum = 0;
  for (let i = 0; i < out.length; ++i) {
    sum += differences[i];
    out[i] = sum * scale;
  }
  return out;
}

// A step function: from t[i] on there are b[i] bytes.
function decodeMemory(memory) {
  const curve = { t: sums(memory.t, 1e-3), b: sums(memory.b, 1), step: memory.step * 1e-3 };
  curve.peak = curve.b.length === 0 ? -1 : 0;
  for (let i = 1; i < curve.b.length; ++i) {
    if (curve.b[i] > curve.b[curve.peak]) curve.peak = i;
  }
  return curve;
}

function decodeRow(row) {
  const n = row.ref.length;
  const start = new Float64Array(n);
  const end = new Float64Array(n);
  let now = 0;
  for (let i = 0; i < n; ++i) {
    now += row.gap[i];
    start[i] = now * 1e-3;
    now += row.dur[i];
    end[i] = now * 1e-3;
  }
  return { name: row.name, link: row.link, start, end, ref: Int32Array.from(row.ref) };
}

function decodePlan(plan) {
  return {
    planner: plan.planner,
    verdict: plan.verdict,
    computeUs: plan.compute * 1e-3,
    memory: decodeMemory(plan.memory),
    rows: plan.rows.map(decodeRow),
    moves: plan.moves,
    moved: plan.moved,
  };
}

function decode(text) {
  const data = JSON.parse(text);
  return {
    ops: data.ops,
    budget: data.budget,
    before: decodeMemory(data.before),
    plans: data.plans.map(decodePlan),
  };
}

function opText(ops, op) {
  const type = ops.types[ops.type[op]];
  return `op ${op} ${ops.names[op]}${type ? ` (${type})` : ""}`;
}

// What a span is: `ref` is an op, or -1 - move.
function spanText(ops, plan, ref) {
  if (ref >= 0) return opText(ops, ref);
  const move = -1 - ref;
  const name = plan.moved.name[plan.moves.of[move]];
  return `${MOVE_KINDS[plan.moves.kind[move]]} ${name}, ${bytesText(plan.moves.bytes[move])}`;
}
