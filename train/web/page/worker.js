// Runs lapwing in a worker, so that the page never waits. The module suspends while it waits for the GPU (JSPI).
import init, { answer, clear_files, file, put_file } from './lapwing_web.js';

/** The text of a panic. The module cannot be used after it. */
let panic = null;
self.lapwing_panicked = text => { panic = text; };

let shown = 0;
self.lapwing_progress = (phase, done, total, unit) => {
  const now = performance.now();
  if (done > 0 && done < total && now - shown < 100) return;
  shown = now;
  self.postMessage({ event: 'progress', phase, done, total, unit });
};

const request = async (call, arg = {}) => JSON.parse(await answer(JSON.stringify({ call, ...arg })));

async function ask(call, arg) {
  try {
    return await request(call, arg);
  } catch (error) {
    if (panic) throw new Error(`lapwing failed and has to be loaded again: ${panic}`);
    // Firefox reports the loss of the device after the errors that it causes. A second request then fails with the reason.
    await new Promise(done => setTimeout(done, 200));
    await request('open');
    throw error;
  }
}

let folders = 0;
/** Puts files into a new folder in the memory of the module. */
function put(files) {
  const folder = `opened-${++folders}`;
  files.forEach(one => put_file(`${folder}/${one.name}`, one.bytes));
  return folder;
}

/** Requests wait for each other; training lets them in between two steps. */
let queue = Promise.resolve();
const inTurn = work => {
  const done = queue.then(work);
  queue = done.catch(() => {});
  return done;
};

let stopped = false;
async function train() {
  stopped = false;
  while (!stopped) {
    const done = await inTurn(async () => {
      const { step, steps, done } = await ask('advance');
      const data = await ask('report');
      data.runs[0].running = !done;
      self.postMessage({ event: 'report', data, step, steps });
      return done;
    });
    if (done) return { done };
  }
  return { done: false };
}

/** Adds the names that only JavaScript is told. Some browsers give none, for privacy. */
async function open() {
  const value = await ask('open');
  const { vendor, architecture } = (await navigator.gpu.requestAdapter())?.info || {};
  value.device.name = [architecture, vendor].filter(Boolean).join(', ') || value.device.name;
  return value;
}

const calls = {
  open: () => inTurn(open),
  train,
  stop: () => { stopped = true; return {}; },
  files: () => inTurn(async () => (await ask('files')).map(path => ({ name: path.split('/').pop(), bytes: file(path) }))),
  look: ({ files, preset }) => inTurn(async () => {
    const folder = put(files);
    try {
      return { data: await ask('look', { folder, preset }) };
    } finally {
      clear_files(folder);
    }
  }),
  adapter: ({ files }) => inTurn(() => ask('adapter', { folder: put(files) })),
};

const ready = init();
self.onmessage = async ({ data: { id, call, arg } }) => {
  try {
    await ready;
    const value = await (calls[call] ? calls[call](arg) : inTurn(() => ask(call, arg)));
    self.postMessage({ id, value });
  } catch (error) {
    self.postMessage({ id, error: error.message || String(error) });
  }
};
