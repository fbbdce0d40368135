// The page of the browser version: posts requests to worker.js, which trains and plays, and shows its answers and events.
// Replies, names and files are untrusted: they are inserted as text only.
(() => {
'use strict';

const { h, board, chart, table, score, count, duration, plural, signed, ARROWS } = lapwing;
const $ = id => document.getElementById(id);

// ---------------------------------------------------------------------------------------------------- the worker

/** Without an event for this many seconds of training the worker is taken for hung. */
const SILENCE = 120;
let worker = null, lastNumber = 0, silence = 0;
const calls = new Map();

/** Posts a request. Resolves to its value; rejects with the worker's sentence. */
function call(name, arg = {}) {
  return new Promise((resolve, reject) => {
    if (!worker) return reject(new Error('The worker has ended. Reload the page.'));
    calls.set(++lastNumber, { resolve, reject });
    worker.postMessage({ id: lastNumber, call: name, arg });
  });
}

function receive({ data }) {
  silence = 0;
  if (data.event === 'report') return reported(data);
  if (data.event === 'progress') return progressed(data);
  const { resolve, reject } = calls.get(data.id) || {};
  calls.delete(data.id);
  if (!resolve) return;
  if (data.error === undefined) resolve(data.value);
  else reject(new Error(data.error));
}

/** Ends a worker that cannot answer any more. */
function end(text) {
  worker?.terminate();
  worker = null;
  setState('ended');
  for (const { reject } of calls.values()) reject(new Error(text));
  calls.clear();
  showError(text);
}

/** Shows an error, or none. */
function showError(text) {
  const reload = h('button', { type: 'button', onclick: () => location.reload() }, 'Reload the page');
  $('error').replaceChildren(...(text ? [text, ...(state === 'ended' || /reload|loaded again|lost/i.test(text) ? [reload] : [])] : []));
}

/** Runs an action of the visitor and shows its error. */
async function attempt(action) {
  showError('');
  try {
    return await action();
  } catch (error) {
    showError(error.message);
  }
}

/** Returns what the browser lacks, or nothing. */
async function lack() {
  if (!isSecureContext) return 'WebGPU works only on pages loaded over HTTPS or from localhost: open this page by such an address.';
  const needs = [['gpu' in navigator, 'WebGPU'], ['Suspending' in (window.WebAssembly || {}), 'WebAssembly JSPI'], ['Worker' in window, 'web workers']];
  const missing = needs.filter(([there]) => !there).map(([, name]) => name);
  if (missing.length) return `This browser lacks ${missing.join(' and ')}: use Chrome or Edge 137, or Firefox 153, or a later one.`;
  const adapter = await navigator.gpu.requestAdapter().catch(() => null);
  return adapter ? '' : 'The browser offers no GPU: turn on graphics acceleration in its settings, or use another computer.';
}

async function open() {
  const missing = await lack();
  if (missing) {
    $('device').textContent = 'Training is not possible here.';
    return showError(missing);
  }
  $('device').textContent = 'Loading the engine.';
  worker = new Worker('worker.js', { type: 'module' });
  worker.onmessage = receive;
  worker.onerror = event => {
    event.preventDefault();
    end(event.message ? `The worker stopped (${event.message}). Reload the page.` : 'The worker did not load. Reload the page; if that fails, check the connection.');
  };
  worker.onmessageerror = () => end('A message of the worker could not be read. Reload the page.');
  // Timers do not run while a computer is suspended, so that only time awake is counted.
  setInterval(() => {
    silence = state === 'training' || state === 'stopping' ? silence + 5 : 0;
    if (silence >= SILENCE) end(`The worker has not reported for ${SILENCE} seconds. After a suspended computer or a lost GPU, reload the page.`);
  }, 5000);
  const { device, presets: list } = await call('open');
  $('device').replaceChildren('GPU: ', h('strong', {}, device.name), '. ',
    device.software ? h('strong', {}, 'This is a software device: the processor computes, and a step takes seconds.') : 'Hardware device.');
  presets = list;
  for (const id of ['preset', 'play-preset']) {
    $(id).replaceChildren(...presets.map(one => h('option', { value: one.preset }, one.title)));
  }
  choosePreset();
  choosePlayers();
  setState('idle');
}

// ---------------------------------------------------------------------------------------------------- training

/** loading, idle (no run), training, stopping, stopped, done, testing or ended. */
let state = 'loading';
let presets = [], latest = null, phase = null, begun = null, drawing = false, charts = [], evaluated = 0;
const presetOf = id => presets.find(one => one.preset === $(id).value);

function setState(now) {
  state = now;
  const busy = state === 'training' || state === 'stopping';
  const names = { training: 'Stop', stopping: 'Stopping', stopped: 'Continue', done: 'Train again' };
  const [go, usable] = [$('go'), !['loading', 'testing', 'ended'].includes(state)];
  go.textContent = names[state] || 'Train';
  go.disabled = !usable;
  go.setAttribute('aria-disabled', state === 'stopping');
  $('again').hidden = state !== 'stopped';
  for (const field of $('controls').querySelectorAll('input, select')) field.disabled = busy || !usable;
  $('selftest-run').disabled = busy || !usable;
  $('play-new').disabled = state === 'loading' || state === 'ended';
  $('file-input').disabled = state === 'loading' || state === 'ended';
  stayAwake(busy);
}

let lock = null;
/** Keeps the screen of a phone on. */
async function stayAwake(wanted) {
  if (wanted && !lock) {
    lock = navigator.wakeLock?.request('screen').catch(() => null);
  } else if (!wanted && lock) {
    (await lock)?.release();
    lock = null;
  }
}

function choosePreset() {
  const preset = presetOf('preset');
  $('group-size').value = preset.group_size;
  $('steps').value = preset.steps;
  $('sampling').value = 'all';
}

/** Forgets the run and the game, which the worker drops with it. */
function forget(status) {
  [latest, phase, charts, evaluated, view] = [null, null, [], 0, null];
  session++;
  $('curves-now').replaceChildren();
  $('status').textContent = status;
  $('progress').value = 0;
  $('game').hidden = true;
}

async function train(anew) {
  if (anew) {
    if (!$('controls').reportValidity()) return;
    setState('training');
    forget('Preparing the run.');
    const settings = { preset: $('preset').value, seed: $('seed').value, group_size: Number($('group-size').value), sampling: $('sampling').value, steps: Number($('steps').value) };
    try {
      const { steps } = await call('start', settings);
      latest = { step: 0, steps, data: null };
    } catch (error) {
      if (state !== 'ended') setState('idle');
      $('status').textContent = '';
      throw error;
    }
    say('Training started.');
  }
  setState('training');
  begun = { time: performance.now(), step: latest.step };
  update();
  let done = false;
  try {
    ({ done } = await call('train'));
    say(done ? 'Training is complete.' : `Training stopped at step ${latest.step}.`);
  } finally {
    phase = null;
    if (latest.data) latest.data.runs[0].running = false;
    if (state !== 'ended') setState(done ? 'done' : 'stopped');
    update();
    offerReport();
  }
  await showDownloads();
}

function reported({ data, step, steps }) {
  latest = { data, step, steps };
  const { evaluations } = data.runs[0];
  if (evaluations.length > evaluated) {
    evaluated = evaluations.length;
    const last = evaluations[evaluated - 1];
    say(`Evaluation after step ${last.step}: held-out success ${score(last.success_rate)}.`);
    offerReport();
  }
  redraw();
}

function progressed(event) {
  const { phase: name, done, total, unit } = event;
  if (state === 'testing') {
    $('status').textContent = `Self-test, ${name}: ${count(done)} of ${count(total)} ${unit}`;
  } else {
    if (state === 'training' || state === 'stopping') phase = event;
    redraw();
  }
}

/** Draws at most once a frame, and nothing while the page is hidden. */
function redraw() {
  if (!drawing) requestAnimationFrame(update);
  drawing = true;
}

const say = text => { $('announce').textContent = text; };

function update() {
  drawing = false;
  if (!latest) return;
  const { step, steps, data } = latest;
  const parts = [`Step ${count(step)} of ${count(steps)}`];
  if (state === 'training') {
    if (phase) parts.push(`${phase.phase}: ${count(phase.done)} of ${count(phase.total)} ${phase.unit}`);
    const seconds = (performance.now() - begun.time) / 1000;
    if (step > begun.step && step < steps) parts.push(`about ${duration(Math.round(seconds / (step - begun.step) * (steps - step)))} left`);
  } else {
    parts.push({ stopping: 'stopping after this step', done: 'complete', ended: 'ended' }[state] || 'stopped');
  }
  $('status').textContent = parts.join(' · ');
  $('progress').max = steps;
  $('progress').value = step;
  if (data) drawCharts(data);
}

function drawCharts(data) {
  lapwing.use(data);
  const wanted = [
    ['Success', 'share of the episodes', 'success_rate', { levels: lapwing.levels(lapwing.successes), range: [0, 1.04] }],
    ['Entropy', 'nats a token', 'entropy', {}],
  ];
  wanted.forEach(([title, unit, metric, options], i) => {
    const series = lapwing.both(metric);
    for (const one of series) one.name = one.name.replace('evaluation', 'held-out evaluation');
    if (charts[i]) charts[i].update(series, options);
    else if ((charts[i] = chart(title, unit, series, options))) $('curves-now').append(charts[i]);
  });
}

$('controls').addEventListener('submit', event => {
  event.preventDefault();
  if (state === 'training') {
    setState('stopping');
    attempt(() => call('stop'));
    update();
  } else if (['idle', 'stopped', 'done'].includes(state)) {
    attempt(() => train(state !== 'stopped'));
  }
});
$('again').addEventListener('click', () => { $('go').focus(); attempt(() => train(true)); });
$('preset').addEventListener('change', choosePreset);

// ---------------------------------------------------------------------------------------------------- the report

const report = $('report');
/** What the report shows: the run of this page, or files that were opened. */
let opened = null, isStale = false, rendered = 0;
const nextFrame = () => new Promise(requestAnimationFrame);

/** Shows the newest report now or, while the visitor uses the present one, offers it. */
function offerReport() {
  isStale = true;
  settle();
}

function settle() {
  const isUsed = report.contains(document.activeElement) && document.activeElement !== report || report.matches(':hover')
    || report.querySelector('details[open]') || lapwing.isPlaying();
  if (isStale && !opened && latest?.data) isUsed ? $('newer').hidden = false : render(latest.data);
}

/** Draws one section in a frame, so that the page stays responsive. */
async function render(data) {
  const own = ++rendered;
  [isStale, $('newer').hidden] = [false, true];
  // The page keeps its height, and with it the scroll position, until the charts are drawn.
  report.style.minHeight = report.offsetHeight + 'px';
  report.replaceChildren();
  $('report-nav').replaceChildren();
  if (opened) {
    report.append(h('p', { class: 'note' }, `This report shows opened files: ${opened}. `, h('button', { type: 'button', onclick: close }, 'Close')));
  }
  const pause = async () => {
    await nextFrame();
    return own === rendered;
  };
  await lapwing.showReport(data, { main: report, nav: $('report-nav'), heading: 'h2', turnExtra: turnWords, pause });
  await nextFrame();
  if (own === rendered) report.style.minHeight = '';
}

function close() {
  opened = null;
  rendered++;
  report.replaceChildren();
  $('report-nav').replaceChildren();
  if (latest?.data) render(latest.data);
  $('file-input').focus();
}

$('newer').addEventListener('click', () => {
  render(latest.data);
  report.focus({ preventScroll: true });
});
for (const event of ['focusout', 'pointerleave']) report.addEventListener(event, () => setTimeout(settle, 500));

// ---------------------------------------------------------------------------------------------------- words

/** Counts the models: new with each run and each opened adapter. */
let session = 0;
const known = new Map(), waiting = [];
let isAsking = false;

/** A bar for the probability of each word; the reply's word is bold. */
function bars(title, words, reply) {
  const row = ({ word, probability }) => {
    const bar = h('i');
    bar.style.width = Math.max(100 * probability, .5) + '%';
    return h('li', { class: word.trim() === reply.trim() ? 'taken' : null }, h('code', { title: word }, word.trim() ? word : JSON.stringify(word)),
      h('span', { class: 'bar', 'aria-hidden': 'true' }, bar), h('b', {}, probability.toFixed(3)));
  };
  return h('div', { class: 'words' }, h('h4', {}, title), h('ol', { class: 'bars', 'aria-label': title }, words.map(row)));
}

/** The probabilities of the words at a turn of a replay: asked for once it is shown. Step 0 is the base. */
function turnWords({ episode, prompt, turn }) {
  if (!worker) return null;
  const trained = episode.step > 0;
  const title = `Next word, ${trained ? 'current model' : 'base model'}`;
  const key = [trained ? `${session} ${latest?.step}` : 'base', prompt].join(' ');
  if (known.has(key)) return bars(title, known.get(key), turn.reply);
  const element = h('div', { class: 'words' }, h('h4', {}, title));
  // Turns that are passed quickly are not asked for.
  setTimeout(() => { waiting.push({ element, key, prompt, trained, title, turn }); ask(); }, 150);
  return element;
}

/** Asks for one turn at a time, the newest first, as long as it is shown. */
async function ask() {
  if (isAsking) return;
  isAsking = true;
  for (let one; (one = waiting.pop());) {
    if (!one.element.isConnected) continue;
    try {
      const words = await call('words', { prompt: one.prompt, trained: one.trained });
      if (known.size > 500) known.clear();
      known.set(one.key, words);
      one.element.replaceWith(bars(one.title, words, one.turn.reply));
    } catch (error) {
      one.element.append(h('p', { class: 'hint' }, error.message));
    }
  }
  isAsking = false;
}

// ---------------------------------------------------------------------------------------------------- play

let view = null, isMoving = false;
const tally = h('p', { class: 'numbers' }), seen = h('div'), ofModel = h('div');
const moves = h('div', { class: 'moves', role: 'group', 'aria-label': 'Moves' });
const played = h('p', { class: 'live', role: 'status' });
$('game').append(h('p', { class: 'hint' }, 'While the focus is here, the arrow keys move.'), tally,
  h('div', { class: 'scene' }, h('div', {}, seen, moves), ofModel), played);

/** Replaces the content of an element; what was open stays open. */
function refill(element, ...content) {
  const open = [...element.querySelectorAll('details')].map(one => one.open);
  element.replaceChildren(...content);
  element.querySelectorAll('details').forEach((one, i) => { one.open = open[i] || false; });
}

function choosePlayers() {
  const preset = presetOf('play-preset');
  const players = preset.players || 1;
  const seats = Array.from({ length: players }, (_, i) => h('option', { value: i }, players > 1 ? `player ${i + 1}` : 'the player'));
  $('play-human').replaceChildren(...seats, h('option', { value: '' }, 'a spectator'));
}

async function newGame() {
  const human = $('play-human').value;
  showView(await call('play', { preset: $('play-preset').value, seed: $('play-seed').value, human: human === '' ? [] : [Number(human)] }));
}

/** Plays an action; without one, lets the model play a turn. Presses during a move are ignored. */
async function move(action) {
  if (isMoving || !view || view.over) return;
  isMoving = true;
  try {
    showView(await call('move', action === undefined ? {} : { action }));
  } finally {
    isMoving = false;
  }
}

function showView(now) {
  view = now;
  const human = view.agents.some(agent => agent.human);
  const name = i => view.agents[i].human ? 'You' : view.agents.length > 1 ? `Model (player ${i + 1})` : 'Model';
  const returns = view.agents.map((agent, i) => `${name(i)}: return ${signed(agent.return)}`);
  const outcome = !view.over ? [] : [h('span', { class: 'badge ' + (view.success ? 'good' : 'bad') }, view.success ? 'success' : 'no success')];
  refill(ofModel, ...view.moves.map(one => h('div', { class: 'move' },
    h('h3', {}, `${name(one.agent)}: `, one.action === null ? 'invalid reply' : `${ARROWS[one.action] || ''} ${one.action}`),
    h('dl', { class: 'reply' }, h('dt', {}, 'Reply'), h('dd', {}, h('pre', {}, one.reply || '(nothing)'))),
    one.words.length ? bars('Probability of each word', one.words, one.reply) : null,
    h('details', {}, h('summary', {}, 'Prompt'), h('pre', {}, one.prompt)))));
  refill(seen, board(view.game, view.observation));
  tally.replaceChildren(h('strong', {}, view.over ? `Over after ${plural(view.turn, 'turn')}` : `Turn ${view.turn + 1}`), ...returns.map(text => h('span', {}, text)), ...outcome);
  played.textContent = [view.over ? `Game over, ${view.success ? 'success' : 'no success'}.` : `Turn ${view.turn + 1}.`,
    ...view.moves.map(one => `${name(one.agent)} played ${one.action ?? 'an invalid reply'}.`), returns.join(', ') + '.'].join(' ');
  // The buttons stay while the actions do, and with them the focus.
  const wanted = view.over ? [] : human ? view.actions : ['Next turn'];
  if ([...moves.children].map(one => one.value).join() !== wanted.join()) {
    if (view.over && moves.contains(document.activeElement)) $('play-new').focus({ preventScroll: true });
    moves.replaceChildren(...wanted.map(action => h('button', { type: 'button', value: action, onclick: () => attempt(() => move(human ? action : undefined)) },
      (ARROWS[action] ? ARROWS[action] + ' ' : '') + action)));
  }
  $('game').hidden = false;
}

$('play-form').addEventListener('submit', event => { event.preventDefault(); attempt(newGame); });
$('play-preset').addEventListener('change', choosePlayers);
$('play').addEventListener('keydown', event => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest('input, select, pre, summary') || !view || view.over) return;
  const action = { ArrowLeft: 'left', ArrowRight: 'right', ArrowUp: 'up', ArrowDown: 'down' }[event.key];
  const human = view.agents.some(agent => agent.human);
  if (human ? !view.actions.includes(action) : action !== 'right') return;
  event.preventDefault();
  attempt(() => move(human ? action : undefined));
});

// ---------------------------------------------------------------------------------------------------- files

const ADAPTER = ['adapter_config.json', 'adapter_model.safetensors'];
const RUN = ['episodes.jsonl', 'metrics.jsonl', 'config.toml', 'sessions.jsonl', 'test.json'];
const MAX_BYTES = 500e6;
const size = bytes => bytes < 1e6 ? (bytes / 1e3).toFixed(1) + ' kB' : (bytes / 1e6).toFixed(1) + ' MB';
let urls = [];

async function showDownloads() {
  const files = await call('files');
  urls.forEach(URL.revokeObjectURL);
  urls = files.map(file => URL.createObjectURL(new Blob([file.bytes], { type: 'application/octet-stream' })));
  $('downloads').replaceChildren(h('p', { class: 'hint' }, `The run at step ${count(latest.step)}:`),
    h('ul', {}, files.map((file, i) => h('li', {}, h('a', { href: urls[i], download: file.name }, file.name), ` ${size(file.bytes.length)}`))));
}

/** Opens files: an adapter, files of a run, or both. */
async function openFiles(list) {
  // A browser adds a number to a file that it downloads again.
  const found = new Map(list.map(file => [file.name.replace(/ ?\(\d+\)(?=\.)/, ''), file]));
  const [adapter, run] = [ADAPTER, RUN].map(names => names.filter(name => found.has(name)));
  const isRun = found.has('episodes.jsonl') || found.has('metrics.jsonl');
  if (!isRun && adapter.length < ADAPTER.length) {
    throw new Error(adapter.length ? `An adapter is two files: choose ${ADAPTER.join(' and ')} together.` : `None of these files can be opened: choose ${ADAPTER.join(' and ')}, or episodes.jsonl or metrics.jsonl of a run.`);
  }
  const read = names => Promise.all(names.map(async name => ({ name, bytes: new Uint8Array(await found.get(name).arrayBuffer()) })));
  if ([...adapter, ...run].some(name => found.get(name).size > MAX_BYTES)) throw new Error(`A file is larger than ${size(MAX_BYTES)}: use lapwing report for it.`);
  const done = [];
  if (isRun) {
    const { data } = await call('look', { files: await read(run), preset: $('preset').value });
    opened = run.join(', ');
    render(data);
    report.scrollIntoView();
    report.focus({ preventScroll: true });
    done.push('The report below shows the run.');
  }
  if (adapter.length === ADAPTER.length) {
    if (state === 'training' || state === 'stopping') throw new Error('An adapter replaces the run: stop the training first.');
    const { text } = await call('adapter', { files: await read(ADAPTER) });
    forget('The next run starts from the opened adapter.');
    setState('idle');
    done.push(text);
  }
  $('opened').textContent = done.join(' ');
}

/** Returns the dropped files, and those in a dropped directory. */
async function dropped(transfer) {
  const inside = directory => new Promise((resolve, reject) => directory.createReader().readEntries(resolve, reject));
  const entries = [...transfer.items].map(item => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.some(entry => entry.isDirectory)) return [...transfer.files];
  const all = (await Promise.all(entries.map(entry => entry.isDirectory ? inside(entry) : [entry]))).flat();
  return Promise.all(all.filter(entry => entry.isFile).map(entry => new Promise((resolve, reject) => entry.file(resolve, reject))));
}

$('file-input').addEventListener('change', ({ target }) => {
  const files = [...target.files];
  target.value = '';
  if (files.length) attempt(() => openFiles(files));
});
for (const event of ['dragover', 'dragleave', 'drop']) {
  document.addEventListener(event, drag => {
    drag.preventDefault();
    document.body.classList.toggle('dropping', event === 'dragover');
    if (event === 'drop' && drag.dataTransfer.files.length && worker) attempt(async () => openFiles(await dropped(drag.dataTransfer)));
  });
}

// ---------------------------------------------------------------------------------------------------- self-test

$('selftest-run').addEventListener('click', () => attempt(async () => {
  const before = state;
  setState('testing');
  $('selftest-rows').replaceChildren();
  $('selftest-text').textContent = 'The self-test is running.';
  try {
    const { ok, rows, text } = await call('selftest');
    $('selftest-text').replaceChildren(h('span', { class: 'badge ' + (ok ? 'good' : 'bad') }, ok ? 'passed' : 'failed'), ' ', text);
    const columns = ['step', 'return, native', 'return, here', 'gradient norm, native', 'gradient norm, here'].map(name => [name, 'n']);
    $('selftest-rows').append(table('The first steps of the default run', columns,
      rows.map(row => [row.step, row.native, row.here, row.norm_native, row.norm_here].map(value => String(Number(value.toPrecision(8))))), 'Self-test'));
  } catch (error) {
    $('selftest-text').textContent = '';
    throw error;
  } finally {
    $('status').textContent = '';
    if (state !== 'ended') setState(before);
    update();
  }
}));

open().catch(error => showError(error.message));
})();
