// SPDX-License-Identifier: Apache-2.0
//
// Graphs with a plan's moves in them, run by ONNX Runtime: their outputs have the bits of the original's.
// For each provided model that ONNX Runtime runs, at two budgets: 5% and 50% of the way from the floor to
// the unplanned peak. That is without its optimizations, and without packing constant weights for its
// products: with them it fuses other neighbours and lays tensors out otherwise where nodes stand
// between, and weights that come back are no constants to it; the sums of floats come out in another
// order then, and outputs have to be close.
//
// same_outputs_test.mjs --hmmctl FILE --packages FOLDER --graphs FOLDER --out FOLDER
import {execFileSync} from 'node:child_process';
import {createRequire} from 'node:module';
import fs from 'node:fs';
import path from 'node:path';
import {parseArgs} from 'node:util';

const {values: args} = parseArgs({
  options: {
    hmmctl: {type: 'string'},
    packages: {type: 'string'},
    graphs: {type: 'string'},
    out: {type: 'string'},
  },
});
const ort = createRequire(path.join(args.packages, 'x'))('onnxruntime-node');

// Of the symbols, and of inputs that are not free: what the model itself asks for.
const MODELS = {
  light_resnet50: {},
  light_densenet121: {},
  gpt2_megatron: {dims: {batch_size: 2, seq_len: 16, past_seq_len: 32}},
  gpt2_past_12layer: {dims: {batch_size: 2, seq_len: 7}},
  paged_decoder: {
    dims: {num_tokens: 8, batch_plus_1: 3, batch: 2, max_blocks: 4},
    given: {
      cumulative_sequence_lengths: [0, 4, 8],
      past_sequence_lengths: [0, 0],
      block_table: [0, 1, 2, 3, 4, 5, 6, 7],
      attention_metadata: [4, 4, 16],
    },
  },
  tiny_random_gpt2_past: {dims: {batch_size: 2, seq_len: 1, past_seq_len: 15, total_seq_len: 16}},
};
// Those it does not run on a CPU, moves or not, and what it says; a file of neither list is an error.
const REFUSED = {
  bloom_3layer_training: {says: /aten/},
  tiny_gpt2_beamsearch_fp16: {
    says: /BeamSearch does not support float16 model on CPU/,
    dims: {batch_size: 2, sequence_length: 16, num_return_sequences: 1, max_length: 32, seq_len: 1,
           past_seq_len: 31, total_seq_len: 32},
    given: {max_length: [32], min_length: [1], num_beams: [4], num_return_sequences: [1],
            length_penalty: [1], repetition_penalty: [1]},
  },
};
const BUDGETS = [0.05, 0.5];  // of the way from the floor to the unplanned peak
const LEVELS = ['disabled', 'all'];
const CLOSE = 1e-4;  // of the largest number of an output

// The same numbers in every run.
function* numbers(seed) {
  for (let state = seed;;) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    yield state / 4294967296;
  }
}

const ARRAYS = {
  float32: Float32Array, float64: Float64Array, int32: Int32Array, int64: BigInt64Array,
  uint8: Uint8Array, bool: Uint8Array,
};

function inputsOf(session, model) {
  const random = numbers(7);
  const feeds = {};
  for (const input of session.inputMetadata) {
    const dims = input.shape.map((dim) => typeof dim === 'string' ? model.dims[dim] : dim);
    const count = dims.reduce((a, b) => a * b, 1);
    const given = model.given?.[input.name];
    const array = new ARRAYS[input.type](count);
    for (let i = 0; i < count; ++i) {
      const value = given ? given[i] : input.type.startsWith('float') ?
          2 * random.next().value - 1 : Math.floor(2 * random.next().value);
      array[i] = input.type === 'int64' ? BigInt(value) : value;
    }
    feeds[input.name] = new ort.Tensor(input.type, array, dims);
  }
  return feeds;
}

async function outputsOf(file, model, level) {
  const session = await ort.InferenceSession.create(file, {
    graphOptimizationLevel: level,
    intraOpNumThreads: 1,
    logSeverityLevel: 3,
    extra: {session: {disable_prepacking: level === 'disabled' ? '1' : '0'}},
  });
  const outputs = await session.run(inputsOf(session, model));
  const names = session.outputNames;
  await session.release();
  return {names, outputs};
}

function bits(tensor) {
  return Buffer.from(tensor.data.buffer, tensor.data.byteOffset, tensor.data.byteLength);
}

function isClose(x, y) {
  if (!x.type.startsWith('float')) return bits(x).equals(bits(y));
  const largest = x.data.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  return x.data.every((value, i) => Math.abs(value - y.data[i]) <= CLOSE * largest);
}

function compare(where, a, b, exact) {
  if (String(a.names) !== String(b.names)) throw new Error(`${where}: other outputs`);
  for (const name of a.names) {
    const [x, y] = [a.outputs[name], b.outputs[name]];
    if (x.type !== y.type || String(x.dims) !== String(y.dims)) {
      throw new Error(`${where}: output ${name} has another type or shape`);
    }
    if (exact && !bits(x).equals(bits(y))) throw new Error(`${where}: ${name} has other bits`);
    if (!isClose(x, y)) throw new Error(`${where}: output ${name} is another`);
    // Bits that are all alike would prove little.
    if (x.data.length > 1 && !bits(x).some((byte) => byte !== bits(x)[0])) {
      throw new Error(`${where}: output ${name} is one byte over and over`);
    }
  }
}

function hmmctl(...words) {
  return execFileSync(args.hmmctl, words, {encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit']});
}

// The file with the moves, and how many they are; what is read back is the same graph, with that plan.
function annotate(name, original, dims, budget) {
  const annotated = path.join(args.out, `${name}_${budget}.onnx`);
  const plan = path.join(args.out, `${name}_${budget}.pb`);
  const report = JSON.parse(hmmctl('plan', original, ...dims, '--hbm', `${budget}`, '--out', plan,
                                   '--emit-graph', annotated, '-o', 'json'));
  if (report.verdict !== 'planned') {
    throw new Error(`${name}: ${budget} bytes: ${report.verdict}, not planned`);
  }
  const check = JSON.parse(hmmctl('plan', 'check', annotated, annotated, ...dims, '-o', 'json'));
  const diff = JSON.parse(hmmctl('plan', 'diff', plan, annotated, '-o', 'json'));
  if (!check.good || !diff.same) throw new Error(`${annotated}: another plan comes back`);
  return {annotated, moves: report.swap_ins + report.swap_outs + report.drops + report.recomputes};
}

async function checkRefused(name, model) {
  const original = path.join(args.graphs, `${name}.onnx`);
  const error = await outputsOf(original, model, 'disabled').then(() => null, (reason) => reason);
  if (!error) throw new Error(`${name}: ONNX Runtime runs it; it belongs among the models`);
  if (!model.says.test(error.message)) throw error;
  console.log(`${name}: ONNX Runtime does not run it`);
}

// Returns the moves.
async function checkModel(name, model) {
  const original = path.join(args.graphs, `${name}.onnx`);
  const dims = model.dims ?
      ['--dim', Object.entries(model.dims).map(([k, v]) => `${k}=${v}`).join(',')] : [];
  const expected = {};
  for (const level of LEVELS) expected[level] = await outputsOf(original, model, level);
  const shown = JSON.parse(hmmctl('graph', 'show', original, ...dims, '-o', 'json'));
  const [floor, peak] = [shown.floor_bytes, shown.unplanned_peak_bytes];
  let all = 0;
  for (const share of BUDGETS) {
    const budget = floor + Math.ceil(share * (peak - floor));
    const {annotated, moves} = annotate(name, original, dims, budget);
    for (const level of LEVELS) {
      const where = `${name} in ${budget} bytes, optimizations ${level}`;
      compare(where, expected[level], await outputsOf(annotated, model, level), level === 'disabled');
    }
    all += moves;
    console.log(`${name} in ${budget} of ${peak} bytes, ${moves} moves: same bits`);
  }
  return all;
}

fs.mkdirSync(args.out, {recursive: true});
const provided = fs.readdirSync(args.graphs).filter((file) => file.endsWith('.onnx')).sort();
const known = [...Object.keys(MODELS), ...Object.keys(REFUSED)].map((name) => `${name}.onnx`).sort();
if (String(provided) !== String(known)) throw new Error(`not the files provided: ${provided}`);
let moves = 0;
for (const [name, model] of Object.entries(REFUSED)) await checkRefused(name, model);
for (const [name, model] of Object.entries(MODELS)) moves += await checkModel(name, model);
if (moves < 1000) throw new Error(`${moves} moves in all prove little`);
console.log(`${Object.keys(MODELS).length} models, ${moves} moves`);
