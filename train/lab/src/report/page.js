// Shows the data of a report, here and in the browser version. Replies and names are untrusted: they are inserted as text only.
const lapwing = (() => {
'use strict';

/** The data that is being shown, where to, and the links to its sections. */
let page, many, scenes, main, sections, turnExtra;

// ---------------------------------------------------------------------------------------------------- elements

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat().filter(child => child !== null && child !== undefined));
  return element;
}
const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);

/** A table that scrolls sideways. A column is [name, class]; the class n is for numbers. A row is a list of cells. */
function table(caption, columns, rows, label = caption) {
  const cell = (content, i) => h(i ? 'td' : 'th', { class: columns[i][1], scope: i ? null : 'row' }, content);
  return h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': label }, h('table', {}, h('caption', {}, caption),
    h('thead', {}, h('tr', {}, columns.map(([name, kind]) => h('th', { scope: 'col', class: kind === 'n' ? 'n' : null }, name)))),
    h('tbody', {}, rows.map(row => h('tr', {}, row.map(cell))))));
}

/** A sample of a line, for legends. */
const swatch = (...shapes) => s('svg', { class: 'key', viewBox: '0 0 22 12', 'aria-hidden': 'true' }, ...shapes);

function section(id, title, ...children) {
  const part = h('section', { id, 'aria-labelledby': id + '-title' }, h('h2', { id: id + '-title' }, title), ...children);
  sections.append(h('a', { href: '#' + id }, title));
  main.append(part);
  return part;
}

// ---------------------------------------------------------------------------------------------------- numbers

const isNumber = value => typeof value === 'number';
/** Formats a number with about four digits. */
function figure(value) {
  if (!isNumber(value)) return '–';
  const size = Math.abs(value);
  if (size >= 1e6) return (value / 1e6).toFixed(1) + 'M';
  if (size >= 1e5) return (value / 1e3).toFixed(0) + 'k';
  if (size >= 1e4) return (value / 1e3).toFixed(1) + 'k';
  if (size >= 100) return value.toFixed(0);
  if (size >= 10) return value.toFixed(1);
  if (size >= 1 || size === 0) return value.toFixed(2);
  if (size >= 0.001) return value.toFixed(3);
  return value.toExponential(1);
}
const score = value => isNumber(value) ? value.toFixed(3) : '–';
const count = value => value.toLocaleString('en');
function duration(seconds) {
  if (seconds < 60) return seconds.toFixed(seconds < 10 ? 1 : 0) + ' s';
  if (seconds < 3600) return Math.floor(seconds / 60) + ' min ' + Math.round(seconds % 60) + ' s';
  return Math.floor(seconds / 3600) + ' h ' + Math.round(seconds % 3600 / 60) + ' min';
}
const date = seconds => new Date(seconds * 1000).toISOString().slice(0, 16).replace('T', ' ') + ' UTC';
const sum = values => values.reduce((a, b) => a + b, 0);
const plural = (number, one, many) => count(number) + ' ' + (number === 1 ? one : many || one + 's');
const colour = group => `var(--s${group % 6})`;

// ---------------------------------------------------------------------------------------------------- charts

/** Returns round values in a range. */
function ticks(low, high, wanted) {
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(n => n * power).find(n => n >= rough);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step + 0);
  return found;
}

/** Formats a tick with enough digits to differ from its neighbours. */
function tickText(value, all) {
  const step = all.length > 1 ? all[1] - all[0] : Math.abs(value) || 1;
  if (Math.abs(value) >= 1e4) return figure(value);
  if (step < 1e-4) return value === 0 ? '0' : value.toExponential(0);
  return value.toFixed(Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));
}

/** Returns the measured points of a curve: [x, mean, low, high]. */
function points(curve, x) {
  const found = [];
  curve.mean.forEach((y, i) => {
    if (isNumber(y)) found.push([x[i], y, curve.low ? curve.low[i] : null, curve.high ? curve.high[i] : null]);
  });
  return found;
}

const DASHES = ['5 4', '1 3', '9 3'];

/**
 * A chart of series over training steps. A series: {name, points, colour, style}; the style is strong (with dots), pale, dashed
 * or empty. A level is a horizontal line, named in the legend: {name, value}. Arrow keys move the cursor; the legend shows the values there.
 * The method `update` of the element replaces the series; cursor and focus stay.
 */
function chart(title, unit, all, options) {
  if (all.every(one => one.points.length === 0)) return null;
  let series, levels, range, marks, xs, low, high, px;

  function set(all, options = {}) {
    series = all.filter(one => one.points.length > 0);
    ({ levels = [], range = null, marks = [] } = options);
    const at = cursor === null ? null : xs[cursor];
    xs = [...new Set(series.flatMap(one => one.points.map(p => p[0])))].sort((a, b) => a - b);
    cursor = xs.includes(at) ? xs.indexOf(at) : null;
    const values = series.flatMap(one => one.points.flatMap(p => [p[1], p[2], p[3]])).concat(levels.map(l => l.value)).filter(isNumber);
    [low, high] = range || [Math.min(...values), Math.max(...values)];
    if (range) return;
    if (low > 0 && low < high * 0.6) low = 0;
    const margin = (high - low || Math.abs(high) || 1) * 0.06;
    high += margin;
    if (low !== 0) low -= margin;
  }

  const legend = h('ul', { class: 'legend' });
  const holder = h('div', { class: 'chart' });
  const live = h('p', { class: 'live', role: 'status' });
  const drawing = s('svg', {
    role: 'img', tabindex: 0,
    onpointermove: event => {
      const at = drawing.getBoundingClientRect();
      point((event.clientX - at.left) * drawing.viewBox.baseVal.width / at.width);
    },
    onpointerleave: () => { cursor = null; place(); },
    onkeydown: event => {
      const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!move) return;
      event.preventDefault();
      cursor = cursor === null ? (move > 0 ? 0 : xs.length - 1) : Math.min(Math.max(cursor + move, 0), xs.length - 1);
      place();
      live.textContent = 'step ' + xs[cursor] + ': ' + readings().map(([name, value]) => name + ' ' + value).join(', ');
    },
  });
  holder.append(drawing);
  let cursor = null;

  function draw() {
    const [first, last] = [xs[0], xs[xs.length - 1]];
    const width = Math.max(holder.clientWidth, 220);
    const height = Math.round(Math.min(Math.max(width * 0.5, 170), 290));
    const rows = ticks(low, high, height / 46);
    const widest = Math.max(...rows.map(y => tickText(y, rows).length));
    const box = { left: 14 + 7 * widest, right: width - 10, top: 10, bottom: height - 24 };
    px = x => last === first ? (box.left + box.right) / 2 : box.left + (x - first) / (last - first) * (box.right - box.left);
    const py = y => box.bottom - (y - low) / (high - low) * (box.bottom - box.top);
    const columns = last === first ? [first] : ticks(first, last, Math.min(width / 55, last - first)).filter(Number.isInteger);
    const path = list => list.map((p, i) => (i ? 'L' : 'M') + px(p[0]).toFixed(1) + ' ' + py(p[1]).toFixed(1)).join('');
    fill(drawing, { viewBox: `0 0 ${width} ${height}`, height, 'aria-label': summary() }, []).replaceChildren();
    for (const y of rows) {
      drawing.append(
        s('line', { class: 'gridline', x1: box.left, x2: box.right, y1: py(y), y2: py(y) }),
        s('text', { x: box.left - 6, y: py(y) + 4, 'text-anchor': 'end' }, tickText(y, rows)));
    }
    for (const x of columns) {
      drawing.append(s('text', { x: px(x), y: height - 6, 'text-anchor': px(x) > box.right - 14 ? 'end' : px(x) < box.left + 6 ? 'start' : 'middle' }, count(x)));
    }
    drawing.append(s('line', { class: 'axis', x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }));
    for (const mark of marks) {
      drawing.append(s('line', { class: 'mark', x1: px(mark.step), x2: px(mark.step), y1: box.bottom - 8, y2: box.bottom },
        s('title', {}, mark.text)));
    }
    for (const one of series) {
      if (!one.points.some(p => isNumber(p[2]))) continue;
      const there = one.points.map(p => [p[0], p[3]]), back = one.points.map(p => [p[0], p[2]]).reverse();
      drawing.append(s('path', { class: 'band', fill: one.colour, d: path(there) + path(back).replace('M', 'L') + 'Z' }));
    }
    for (const one of series) {
      const kind = one.style || '';
      drawing.append(s('path', { class: 'line ' + kind, stroke: one.colour, d: path(one.points) }));
      if (kind === 'strong' && one.points.length <= 60 || one.points.length === 1) {
        for (const p of one.points) drawing.append(s('circle', { cx: px(p[0]), cy: py(p[1]), r: 3.2, fill: one.colour }));
      }
    }
    levels.forEach((level, i) => drawing.append(
      s('line', { class: 'level', x1: box.left, x2: box.right, y1: py(level.value), y2: py(level.value), 'stroke-dasharray': DASHES[i] })));
    drawing.append(s('line', { class: 'cursor', y1: box.top, y2: box.bottom, visibility: 'hidden' }));
    place();
  }

  /** Moves the cursor to the step nearest to a position. */
  function point(at) {
    const near = xs.reduce((best, x, i) => Math.abs(px(x) - at) < Math.abs(px(xs[best]) - at) ? i : best, 0);
    if (near !== cursor) { cursor = near; place(); }
  }

  function place() {
    const line = drawing.querySelector('.cursor');
    line.setAttribute('visibility', cursor === null ? 'hidden' : 'visible');
    if (cursor !== null) {
      line.setAttribute('x1', px(xs[cursor]));
      line.setAttribute('x2', px(xs[cursor]));
    }
    // Always present, so that the cursor does not move the layout.
    legend.replaceChildren(h('li', {}, h('span', {}, cursor === null ? 'at the end' : 'step ' + count(xs[cursor]))),
      ...series.map((one, i) => h('li', {},
        swatch(
          one.points.some(p => isNumber(p[2])) ? s('rect', { class: 'band', width: 22, height: 12, fill: one.colour, opacity: .25 }) : null,
          s('path', { d: 'M0 6H22', fill: 'none', stroke: one.colour, 'stroke-width': one.style === 'strong' ? 3 : 2,
            opacity: one.style === 'pale' ? .65 : 1, 'stroke-dasharray': one.style === 'dashed' ? '5 3' : null })),
        h('span', {}, one.name, ' ', h('b', {}, readings()[i][1])))),
      ...levels.map((level, i) => h('li', {}, swatch(s('path', { class: 'level', d: 'M0 6H22', 'stroke-dasharray': DASHES[i] })),
        h('span', {}, level.name, ' ', h('b', {}, score(level.value))))));
  }

  /** Returns the values at the cursor, or the last values. */
  function readings() {
    return series.map(one => {
      const p = cursor === null ? one.points[one.points.length - 1] : one.points.find(p => p[0] === xs[cursor]);
      return [one.name, p ? figure(p[1]) + (isNumber(p[2]) ? ` (${figure(p[2])} to ${figure(p[3])})` : '') : '–'];
    });
  }

  function summary() {
    const of = one => {
      const [begin, end] = [one.points[0], one.points[one.points.length - 1]];
      const top = one.points.reduce((best, p) => p[1] > best[1] ? p : best);
      return `${one.name}: ${figure(begin[1])} at step ${begin[0]}, ${figure(end[1])} at step ${end[0]}, highest ${figure(top[1])} at step ${top[0]}.`;
    };
    const baselines = levels.map(l => `${l.name} ${score(l.value)}.`);
    return [`Chart of ${title.toLowerCase()}${unit ? ', ' + unit : ''}, over training steps.`, ...series.map(of), ...baselines,
      'The left and right arrow keys read single steps.'].join(' ');
  }

  /** Returns a table of at most 12 steps. */
  function steps() {
    const rows = xs.length <= 12 ? xs : Array.from({ length: 12 }, (_, i) => xs[Math.round(i * (xs.length - 1) / 11)]);
    const value = (one, x) => {
      const p = one.points.find(p => p[0] === x);
      return p ? figure(p[1]) : '';
    };
    return table(rows.length < xs.length ? `${rows.length} of ${xs.length} steps` : 'all steps', [['step', 'n'], ...series.map(one => [one.name, 'n'])],
      rows.map(x => [count(x), ...series.map(one => value(one, x))]), title + ' as a table');
  }

  const details = h('details', {}, h('summary', {}, 'As a table'));
  details.addEventListener('toggle', () => { if (details.open && details.children.length === 1) details.append(steps()); });
  set(all, options);
  new ResizeObserver(draw).observe(holder);
  const element = h('figure', { class: 'card' }, h('figcaption', {}, h('h3', {}, title), h('span', {}, unit)), holder, legend, live, details);
  element.update = (all, options) => {
    set(all, options);
    draw();
    const open = details.children[1];
    if (open && !open.contains(document.activeElement)) open.replaceWith(steps());
  };
  return element;
}

// ---------------------------------------------------------------------------------------------------- results of the runs

const seedsOf = group => group.runs.length;
const label = group => seedsOf(group) > 1 ? `${group.label} (${seedsOf(group)} runs)` : group.label;

/** Returns the series of a metric, one for each group. */
function series(from, metric, { name = '', style = '' } = {}) {
  return page.groups.flatMap((group, i) => {
    const curve = group[from].metrics[metric];
    if (!curve) return [];
    const text = [many ? label(group) : '', name].filter(Boolean).join(', ') || metric.replaceAll('_', ' ');
    return [{ name: text, points: points(curve, group[from].x), colour: colour(i), style }];
  });
}

/** Returns the baselines of a metric, or none if the runs have different ones. */
function levels(of) {
  const found = new Map();
  for (const run of page.runs) {
    for (const [name, value] of run.baselines ? of(run.baselines) : []) {
      if (!isNumber(value)) continue;
      if (found.has(name) && found.get(name) !== value) return [];
      found.set(name, value);
    }
  }
  const merged = new Map();
  for (const [name, value] of found) merged.set(value, [...merged.get(value) || [], name]);
  return [...merged].map(([value, names]) => ({ name: names.join(' = '), value }));
}
const successes = b => [['random', b.random && b.random.success_rate], ['scripted', b.scripted && b.scripted.success_rate]];
const returns = b => [['random', b.random && b.random.return_mean], ['scripted', b.scripted && b.scripted.return_mean], ['best possible', b.best_possible]];

/** The results before and after training: of the test, or else of the evaluations. */
const tested = run => run.test.sampled[0]?.step === 0 && run.test.sampled[run.test.sampled.length - 1].step === run.steps_done;
const ends = all => [all[0], all.length > 1 ? all[all.length - 1] : undefined];
const outcomes = run => ends(tested(run) ? run.test.sampled : run.evaluations);
const greedy = run => ends(tested(run) ? run.test.greedy : []);
const before = run => outcomes(run)[0];
const after = run => outcomes(run)[1];
const best = run => run.evaluations.reduce((best, one) => !best || one.return_mean > best.return_mean ? one : best, undefined);
const mean = values => values.length ? sum(values) / values.length : undefined;

function state(run) {
  if (run.running) return `running, ${count(run.steps_done)} of ${count(run.steps_total)} steps done`;
  if (run.steps_done < run.steps_total) return `stopped at step ${count(run.steps_done)} of ${count(run.steps_total)}`;
  return plural(run.steps_total, 'step');
}

function head(heading) {
  const first = page.runs[0];
  const games = [...new Set(page.runs.map(run => run.game))].join(', ');
  const of = text => [...new Set(page.runs.flatMap(run => run.sessions.slice(0, 1).map(text)))].join(', ') || null;
  const name = page.groups[0].label;
  const title = many ? `${page.groups.length} experiments on ${games}` : name.startsWith(games) ? name : `${games}: ${name}`;
  const lead = [
    page.runs.length > 1 ? plural(page.runs.length, 'run') : state(first),
    page.runs.length === 1 ? `seed ${first.seed}` : null,
    of(session => session.model),
    of(session => `on ${session.device}${session.software ? ' (a software device)' : ''}`),
    first.sessions.length ? date(first.sessions[0].time) : null,
  ].filter(Boolean).join(' · ');
  main.append(h(heading, {}, title), h('p', { class: 'lead' }, lead));
}

const tile = (name, value, fine) => h('div', { class: 'card tile' }, h('dt', {}, name), h('dd', { class: 'big' }, value), h('dd', { class: 'fine' }, fine));
const change = (from, to) => to === undefined ? [score(from)] : [h('small', {}, score(from) + ' → '), score(to)];

function tiles() {
  const group = page.groups[0], runs = group.runs.map(i => page.runs[i]);
  const baselines = (tested(runs[0]) ? runs[0].test : runs[0]).baselines;
  const of = (which, metric) => mean(runs.map(which).filter(Boolean).map(one => one[metric]));
  const seeds = runs.length > 1 ? `mean of ${runs.length} runs; ` : '';
  const listed = list => list.filter(([, value]) => isNumber(value)).map(([name, value]) => `${name} ${score(value)}`).join(', ');
  const episodes = before(runs[0]) ? before(runs[0]).episodes : 0;
  const greedily = metric => {
    const [from, to] = [0, 1].map(at => mean(runs.map(run => greedy(run)[at]).filter(Boolean).map(one => one[metric])));
    return from === undefined ? '' : `; greedy ${score(from)}${to === undefined ? '' : ' → ' + score(to)}`;
  };
  const played = sum(runs.map(run => run.tokens_played)), computed = sum(runs.map(run => run.tokens_computed));
  const seconds = sum(runs.flatMap(run => run.seconds.map(([, value]) => value)));
  const list = h('dl', { class: 'tiles' });
  if (episodes) {
    list.append(
      tile('Success on held-out scenes', change(of(before, 'success_rate'), of(after, 'success_rate')), seeds + `${plural(episodes, 'episode')} each` + (baselines ? '; ' + listed(successes(baselines)) : '') + greedily('success_rate')),
      tile('Return on held-out scenes', change(of(before, 'return_mean'), of(after, 'return_mean')), seeds + (baselines ? listed(returns(baselines)) : '') + greedily('return_mean')));
  }
  list.append(
    tile('Time', duration(seconds), `${plural(sum(runs.map(run => run.steps_done)), 'step')}, with evaluations; without tests and a warm-up`));
  if (played) {
    list.append(tile('Tokens computed', figure(computed), `of ${figure(played)} played: ${(100 * computed / played).toFixed(1)} %, shared parts of prompts are computed once`));
  }
  main.append(list);
}

function runsTable() {
  const hasGreedy = page.runs.some(run => greedy(run)[0]);
  const row = (run, group) => {
    const [first, last, top] = [before(run), after(run), best(run)];
    const line = swatch(s('path', { d: 'M0 6H22', stroke: colour(group), 'stroke-width': 4 }));
    return [many ? [line, ' ', run.name] : run.name, ...(many ? [page.groups[group].label] : []), run.sessions[0]?.model ?? '–', run.seed, state(run),
      score(first?.success_rate), score(last?.success_rate), ...(hasGreedy ? greedy(run).map(one => score(one?.success_rate)) : []),
      score(first?.return_mean), score(last?.return_mean),
      top ? `${score(top.return_mean)} (step ${top.step})` : '–', duration(sum(run.seconds.map(([, value]) => value)))];
  };
  const numbers = ['success before', 'success after', ...(hasGreedy ? ['greedy before', 'greedy after'] : []), 'return before', 'return after', 'best evaluation', 'time'];
  const columns = [['run', 'word'], ...(many ? [['config', 'word']] : []), ['model', 'word'], ['seed', 'n'], ['state'], ...numbers.map(name => [name, 'n'])];
  const caption = page.runs.every(tested) ? 'Success and return on test scenes, drawn apart from those of the evaluations.'
    : 'Success and return on held-out scenes: the first and the last evaluation, or after the training a test.';
  section('runs', 'Runs', h('div', { class: 'card' }, table(caption, columns,
    page.groups.flatMap((group, i) => group.runs.map(run => row(page.runs[run], i))), 'Runs')));
}

const warning = (run, w) => `${page.runs.length > 1 ? run.name + ', ' : ''}step ${w.step}, ${w.check}: ${w.text}`;

function warnings() {
  const notes = page.runs.flatMap(run => run.notes.map(note => page.runs.length > 1 ? `${run.name}: ${note}` : note));
  const seen = page.runs.flatMap(run => run.warnings.map(w => warning(run, w)));
  const shown = seen.slice(0, 20);
  if (notes.length) main.append(h('div', { class: 'note', role: 'note' }, h('strong', {}, 'Some files are damaged'), h('ul', {}, notes.map(note => h('li', {}, note)))));
  if (seen.length) {
    main.append(h('div', { class: 'note', role: 'note' }, h('strong', {}, plural(seen.length, 'warning')),
      h('ul', {}, shown.map(text => h('li', {}, text)), seen.length > shown.length ? h('li', {}, `and ${seen.length - shown.length} more`) : null)));
  }
}

// ---------------------------------------------------------------------------------------------------- curves

const both = metric => [...series('eval', metric, { name: 'evaluation', style: 'strong' }), ...series('train', metric, { name: 'training', style: 'pale' })];

function results() {
  const marks = page.runs.flatMap(run => run.warnings.map(w => ({ step: w.step, text: warning(run, w) })));
  const large = [
    chart('Success', 'share of the episodes', both('success_rate'), { levels: levels(successes), range: [0, 1.04], marks }),
    chart('Return', 'mean of the game’s return', both('return_mean'), { levels: levels(returns), marks }),
  ].filter(Boolean);
  const hint = [];
  if (page.bucket > 1) hint.push(`Each point of training is the mean of ${page.bucket} steps.`);
  if (page.groups.some(group => seedsOf(group) > 1)) hint.push('Runs that differ in the seed only are one line, their mean; the band is their range.');
  if (marks.length) hint.push('Red marks at the bottom are warnings.');
  section('results', 'Results', large.length ? null : h('p', { class: 'note' }, 'There are no measurements yet.'),
    hint.length ? h('p', { class: 'hint' }, hint.join(' ')) : null, h('div', { class: 'grid two' }, large));
}

function curves() {
  const train = metric => series('train', metric, many ? {} : { name: metric.replaceAll('_', ' ') });
  const changes = metric => page.groups.some(group => new Set((group.train.metrics[metric] || { mean: [] }).mean.filter(isNumber)).size > 1);
  const positive = metric => page.groups.some(group => (group.train.metrics[metric] || { mean: [] }).mean.some(value => value > 0));
  const small = [
    chart('TD error', 'mean of |target - Q|', train('td_error')),
    chart('TD loss', 'before the update', train('td_loss')),
    chart('Target', 'mean target of Q', train('q_target')),
    chart('Exploration', 'probability of a random action', train('epsilon')),
    chart('KL from the reference', 'nats a token', train('kl')),
    chart('Entropy', 'nats a token', train('entropy')),
    page.runs.some(run => run.language) ? chart('Valid actions', 'share of the replies', both('valid_action_rate'), { range: [0, 1.04] }) : null,
    chart('Length of an episode', 'turns', both('episode_length_mean')),
    changes('reply_length_mean') ? chart('Length of a reply', 'tokens', train('reply_length_mean')) : null,
    changes('reply_cut_rate') ? chart('Replies cut off', 'share of the replies', train('reply_cut_rate')) : null,
    chart('Gradient', 'norm before clipping', [...train('grad_norm'), ...train('gradient_norm')]),
    chart('Loss', 'before the update', train('loss')),
    chart('Critic', 'explained share of the variance', train('explained_variance')),
    changes('clip_fraction') ? chart('Clipped tokens', 'share of the trained tokens', train('clip_fraction')) : null,
    positive('groups_skipped') ? chart('Groups skipped', 'without advantages, in a step', train('groups_skipped')) : null,
    chart('Most frequent action', 'share of all turns', train('top_action_share')),
    chart('Time of a step', 'seconds', [...series('train', 'seconds_rollout', { name: 'rollout' }), ...series('train', 'seconds_update', { name: 'update', style: 'dashed' })]),
    positive('tokens_played') ? chart('Tokens of a step', 'played and computed', [...series('train', 'tokens_played', { name: 'played' }), ...series('train', 'tokens_computed', { name: 'computed', style: 'dashed' })]) : null,
  ];
  const found = small.filter(Boolean);
  if (found.length) section('curves', 'Curves', h('div', { class: 'grid' }, found));
}

function cost() {
  const parts = page.runs.filter(run => run.steps_done > 0 || run.evaluations.length).map(run => {
    const whole = sum(run.seconds.map(([, value]) => value)) || 1;
    const share = value => (100 * value / whole).toFixed(0) + ' %';
    const text = run.seconds.map(([name, value]) => `${name} ${duration(value)} (${share(value)})`).join(', ');
    return h('div', { class: 'cost' },
      page.runs.length > 1 ? h('h3', {}, run.name) : null,
      h('div', { class: 'stack', role: 'img', 'aria-label': text }, run.seconds.map(([, value], i) => {
        const bar = h('i');
        bar.style.width = 100 * value / whole + '%';
        bar.style.background = `var(--s${i})`;
        return bar;
      })),
      h('ul', { class: 'legend' }, run.seconds.map(([name, value], i) => h('li', {},
        swatch(s('rect', { width: 22, height: 12, rx: 3, fill: `var(--s${i})` })),
        h('span', {}, name, ' ', h('b', {}, duration(value)), ' ', share(value)))),
        run.tokens_played ? h('li', {}, h('span', {}, 'share of played tokens that were computed ', h('b', {}, (100 * run.tokens_computed / run.tokens_played).toFixed(1) + ' %'))) : null));
  });
  if (parts.length) section('time', 'Time by phase', h('div', { class: 'card' }, parts));
}

// ---------------------------------------------------------------------------------------------------- boards

/** Splits an observation into a board, rows of single characters separated by spaces, and the text around it. */
function parsed(observation) {
  const lines = observation.split('\n');
  const isRow = line => /^\S( \S)*$/.test(line);
  let top = -1, bottom = -1;
  for (let i = 0; i < lines.length; i++) {
    let end = i;
    while (end < lines.length && isRow(lines[end]) && lines[end].length === lines[i].length) end++;
    if (end - i > bottom - top && end - i >= 2 && lines[i].length >= 3) [top, bottom] = [i, end];
  }
  if (top < 0) return { cells: null, text: observation };
  return { cells: lines.slice(top, bottom).map(line => line.split(' ')), text: [...lines.slice(0, top), ...lines.slice(bottom)].join('\n').trim() };
}

const circle = (fill, r = .3) => s('circle', { cx: .5, cy: .5, r, fill });
const SYMBOLS = {
  'frozen-lake': {
    ground: ['var(--ice)', 'var(--ice-edge)'],
    names: { P: 'player', O: 'hole', G: 'goal', _: 'ice' },
    draw: {
      P: () => [s('path', { d: 'M.36 .36C.3 .2 .2 .14 .08 .14c.1 .06 .15 .14 .18 .26M.26 .46a.23 .23 0 0 1 .44-.09L.9 .44.71 .5c.02 .21-.11 .39-.34 .43-.12 .02-.21-.01-.27-.07 .15-.02 .21-.12 .16-.4z', fill: 'var(--s1)' }), s('circle', { cx: .52, cy: .41, r: .05, fill: '#fff' })],
      O: () => [s('ellipse', { cx: .5, cy: .53, rx: .36, ry: .31, fill: 'var(--hole)' })],
      G: () => [s('path', { d: 'M.3 .15V.87', stroke: 'var(--ink)', 'stroke-width': .06, 'stroke-linecap': 'round' }), s('path', { d: 'M.33 .16L.8 .32L.33 .5z', fill: 'var(--good)' })],
      _: () => [],
    },
  },
  snake: {
    ground: ['var(--floor)', 'var(--floor-edge)'],
    names: { 1: 'own head', 2: 'enemy head', T: 'a body', A: 'apple', B: 'banana', F: 'fire', _: 'empty' },
    draw: {
      1: () => [s('rect', { x: .1, y: .1, width: .8, height: .8, rx: .28, fill: 'var(--s0)' }), s('circle', { cx: .35, cy: .4, r: .09, fill: '#fff' }), s('circle', { cx: .65, cy: .4, r: .09, fill: '#fff' })],
      T: () => [s('rect', { x: .14, y: .14, width: .72, height: .72, rx: .2, fill: 'var(--level)' })],
      A: () => [circle('#d33', .28), s('path', { d: 'M.5 .26q.04-.16 .2-.16', fill: 'none', stroke: 'var(--good)', 'stroke-width': .08, 'stroke-linecap': 'round' })],
      B: () => [s('path', { d: 'M.2 .3Q.35 .8 .82 .66', fill: 'none', stroke: '#e0a800', 'stroke-width': .2, 'stroke-linecap': 'round' })],
      F: () => [s('path', { d: 'M.5 .12Q.8 .42 .72 .68A.24 .24 0 0 1 .28 .68Q.22 .5 .38 .42Q.4 .3 .5 .12z', fill: '#f26a1b' })],
      _: () => [],
    },
  },
};
for (const n of '23456789') {
  SYMBOLS.snake.draw[n] = () => [s('rect', { x: .1, y: .1, width: .8, height: .8, rx: .28, fill: 'var(--s1)' }),
    s('text', { x: .5, y: .7, 'text-anchor': 'middle', style: 'font:bold .55px system-ui,sans-serif;fill:#fff' }, n)];
}

/** Shows an observation: as a picture if the game is known and has a board, or else as text. */
function board(game, observation) {
  const { cells, text } = parsed(observation);
  const known = SYMBOLS[game];
  if (!cells || !known || cells.flat().some(cell => !known.draw[cell])) return h('div', { class: 'board' }, h('pre', {}, observation));
  const [height, width] = [cells.length, cells[0].length];
  const picture = s('svg', { viewBox: `-.04 -.04 ${width + .08} ${height + .08}`, role: 'img', 'aria-label': 'Board, row by row: ' + cells.map(row => row.map(cell => known.names[cell] || 'enemy head ' + cell).join(' ')).join('; ') });
  cells.forEach((row, y) => row.forEach((cell, x) => picture.append(s('g', { transform: `translate(${x} ${y})` },
    s('rect', { x: .02, y: .02, width: .96, height: .96, rx: .08, fill: known.ground[0], stroke: known.ground[1], 'stroke-width': .03 }), known.draw[cell]()))));
  const there = new Set(cells.flat());
  const symbols = Object.keys(known.names).filter(cell => there.has(cell) && cell !== '_');
  return h('div', { class: 'board' }, picture,
    h('ul', { class: 'symbols' }, symbols.map(cell => h('li', {}, s('svg', { viewBox: '0 0 1 1', 'aria-hidden': 'true' }, s('rect', { width: 1, height: 1, fill: known.ground[0] }), known.draw[cell]()), known.names[cell]))),
    text ? h('details', {}, h('summary', {}, 'Other text of the observation'), h('pre', {}, text)) : null);
}

// ---------------------------------------------------------------------------------------------------- replays

const ARROWS = { left: '←', right: '→', up: '↑', down: '↓' };
const prompt = (run, episode, turn) => {
  const [first, second] = episode.prompt_parts[turn].map(i => run.episodes.prompts[i]);
  return second === undefined ? first : first + episode.turns[turn].observation + second;
};
const kind = episode => episode.purpose === 'evaluation' ? `evaluation after step ${episode.step}` : `training step ${episode.step}`;
const seat = episode => `scene ${scenes.indexOf(episode.scene) + 1}` + (episode.agent ? `, agent ${episode.agent + 1}` : '');
const signed = value => !isNumber(value) ? '–' : (value > 0 ? '+' : '') + (Number.isInteger(value) ? value : value.toFixed(3));
/** What uses the arrow keys: {element, key, isPlaying}. */
let replays = [];
/** What was last chosen in a replay, by its id, for when it is shown again with more data. */
const chosen = new Map();

/** Shows episodes side by side, turn by turn. `choices`: [{text, key, episodes: [{run, episode, title}]}]; a key is the same in a later report. */
function replay(id, name, choices, first = 0) {
  let lanes = [], at = 0, timer = null;
  const live = h('p', { class: 'live', role: 'status', 'aria-live': 'polite' });
  const holder = h('div', { class: 'lanes' });
  const where = h('span', { class: 'where' });
  const length = () => Math.max(...lanes.map(lane => lane.episode.turns.length));
  const control = (d, title, onclick) => h('button', { type: 'button', class: 'icon', 'aria-label': title, title, onclick },
    s('svg', { viewBox: '0 0 16 16', 'aria-hidden': 'true' }, s('path', { d })));
  const buttons = [
    control('M3 3v10M13 3L6 8l7 5z', 'First turn', () => go(0)), control('M11 3L4 8l7 5z', 'Turn back', () => go(at - 1)),
    control('M5 3l7 5-7 5z', 'Next turn', () => go(at + 1)), control('M13 3v10M3 3l7 5-7 5z', 'To the end', () => go(length())),
  ];
  const play = h('button', { type: 'button', onclick: () => timer ? stop() : start() }, 'Play');
  const select = h('select', { 'aria-label': name, onchange: () => { choose(Number(select.value)); remember(); } }, choices.map((choice, i) => h('option', { value: i }, choice.text)));
  const element = h('div', { class: 'card replay', id, role: 'group', tabindex: 0, 'aria-label': name + '. The left and right arrow keys step through.' },
    h('div', { class: 'controls' }, select), h('div', { class: 'controls steps' }, buttons, play, where), holder, live);
  element.addEventListener('keydown', event => { if (event.target !== select && key(event)) event.stopPropagation(); });

  function key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return false;
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: length() }[event.key];
    if (to === undefined) return false;
    event.preventDefault();
    go(to);
    return true;
  }
  function start() {
    if (at >= length()) go(0);
    play.textContent = 'Pause';
    timer = setInterval(() => at >= length() || !element.isConnected ? stop() : show(at + 1), 700);
  }
  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = 'Play';
  }
  function remember() { chosen.set(id, { key: choices[select.value].key, at }); }
  function choose(number) {
    stop();
    select.value = number;
    lanes = choices[number].episodes;
    show(0);
  }
  function go(to) { stop(); show(to); remember(); }
  function show(to) {
    at = Math.min(Math.max(to, 0), length());
    const focused = holder.contains(document.activeElement);
    holder.replaceChildren(...lanes.map(one => lane(one, at, go)));
    if (focused) (holder.querySelector('[aria-current]') || element).focus({ preventScroll: true });
    where.textContent = at < length() ? `turn ${at + 1} of ${length()}` : `after ${plural(length(), 'turn')}`;
    buttons.forEach((button, i) => { button.disabled = i < 2 ? at === 0 : at === length(); });
    live.textContent = lanes.map(one => (one.title ? one.title + ': ' : '') + described(one, at)).join('. ');
  }
  const known = chosen.get(id), again = known ? choices.findIndex(choice => choice.key === known.key) : -1;
  choose(again < 0 ? first : again);
  if (again >= 0) show(known.at);
  replays.push({ element, key, isPlaying: () => timer !== null });
  return element;
}

function described({ run, episode }, at) {
  const turn = episode.turns[at];
  if (!turn) return `over, ${episode.success ? 'success' : 'no success'}, return ${signed(episode.return)}`;
  const read = turn.action === null ? 'invalid' : `action ${turn.action}`;
  const reply = run.language ? `reply ${JSON.stringify(turn.reply.slice(-200))}, ` : '';
  return `turn ${at + 1}, ${reply}${read}, reward ${signed(turn.reward)}`;
}

function number(name, value) {
  return h('div', {}, h('span', { class: 'name' }, name), value);
}

function lane({ run, episode, title }, at, go) {
  const end = episode.turns.length, turn = episode.turns[at];
  const outcome = episode.success ? ['good', 'success'] : episode.truncated ? ['plain', 'ran out of turns'] : ['bad', 'no success'];
  const badges = [h('span', { class: 'badge ' + outcome[0] }, outcome[1]), h('span', { class: 'badge plain' }, 'return ' + signed(episode.return))];
  if (episode.chosen !== undefined) badges.push(h('span', { class: 'badge plain' }, episode.chosen ? 'trained on' : 'not selected'));
  const over = at >= end;
  const details = over
    ? [h('div', { class: 'numbers' }, number('turns', end), number('return', signed(episode.return)), run.language ? number('with penalty', signed(episode.composite_return)) : null,
        isNumber(episode.advantage) ? number('advantage', signed(episode.advantage)) : null),
      h('p', { class: 'hint' }, 'The game is over: ' + outcome[1] + '.')]
    : [h('dl', { class: 'reply' }, run.language ? [h('dt', {}, 'Reply'), h('dd', {}, h('pre', {}, turn.reply || '(nothing)'))] : null, h('dt', {}, 'Action'),
        h('dd', {}, turn.action === null ? h('span', { class: 'badge bad' }, 'invalid reply') : h('strong', {}, (ARROWS[turn.action] ? ARROWS[turn.action] + ' ' : '') + turn.action))),
      h('div', { class: 'numbers' }, number('reward', signed(turn.reward)), run.language ? number('penalty', signed(turn.shaping)) : null,
        isNumber(turn.advantage) ? number('advantage', signed(turn.advantage)) : null),
      run.language && turnExtra ? turnExtra({ run, episode, title, turn, prompt: prompt(run, episode, at) }) : null,
      run.language ? h('details', {}, h('summary', {}, 'Prompt'), h('pre', {}, prompt(run, episode, at))) : null];
  const step = (turn, i) => h('li', {}, h('button', { type: 'button', class: turn.action === null ? 'unread' : null, 'aria-current': i === at ? 'step' : null,
    'aria-label': `Turn ${i + 1}: ${turn.action === null ? 'invalid reply' : turn.action}`, onclick: () => go(i) }, turn.action === null ? '?' : ARROWS[turn.action] || turn.action));
  const whole = h('div', { class: 'lane' }, h('h3', { title: 'scene seed ' + episode.scene }, title || kind(episode), ...badges),
    h('div', { class: 'scene' }, board(run.game, over ? episode.last : turn.observation), h('div', {}, details)),
    h('ol', { class: 'turns', 'aria-label': 'Turns' }, episode.turns.map(step),
      h('li', {}, h('button', { type: 'button', 'aria-current': over ? 'step' : null, 'aria-label': 'After the last turn', onclick: () => go(end) }, 'end'))));
  return whole;
}

function pairs() {
  const pairs = page.runs.flatMap(run => run.episodes.pairs.map(([a, b]) => {
    const [first, last] = [run.episodes.shown[a], run.episodes.shown[b]];
    const name = page.runs.length > 1 ? run.name + ', ' : '';
    return {
      text: `${name}${seat(first)}: return ${signed(first.return)} before, ${signed(last.return)} after`,
      key: [run.name, first.scene, first.agent].join(' '),
      gain: last.return - first.return,
      episodes: [{ run, episode: first, title: `Before (step ${first.step})` }, { run, episode: last, title: `After (step ${last.step})` }],
    };
  }));
  // The largest gain is shown first.
  const most = pairs.reduce((best, pair, i) => pair.gain > pairs[best].gain ? i : best, 0);
  if (pairs.length) {
    pairs.unshift(...pairs.splice(most, 1));
    section('before-and-after', 'Before and after', h('p', { class: 'hint' }, 'The same scene at the first and at the last evaluation. ', h('kbd', {}, '←'), ' ', h('kbd', {}, '→'), ' step through.'),
      replay('replay-pairs', 'Scene played before and after', pairs));
  }
}

function episodes() {
  const all = page.runs.flatMap(run => run.episodes.shown.map(episode => ({
    text: (page.runs.length > 1 ? run.name + ', ' : '') + `${kind(episode)}, ${seat(episode)}: return ${signed(episode.return)}`
      + (isNumber(episode.advantage) ? `, advantage ${signed(episode.advantage)}` : '') + (episode.chosen ? ', trained on' : ''),
    key: [run.name, kind(episode), episode.scene, episode.agent, episode.advantage, episode.turns.length].join(' '),
    episodes: [{ run, episode, title: '' }],
  })));
  const total = sum(page.runs.map(run => run.episodes.total));
  // Episodes that were trained on have advantages.
  const first = Math.max(all.findIndex(choice => choice.episodes[0].episode.chosen), 0);
  const hint = all.length < total ? `${count(all.length)} of the ${count(total)} in episodes.jsonl. ` : '';
  if (all.length) {
    section('episodes', 'Episodes', h('p', { class: 'hint' }, hint, h('kbd', {}, '←'), ' ', h('kbd', {}, '→'), ' step through.'), replay('replay-all', 'Episode', all, first));
  } else {
    section('episodes', 'Episodes', h('p', { class: 'hint' }, 'No episodes were recorded (record.episodes).'));
  }
}

/** Arrow keys go to the replay with the largest visible part, unless the focused element uses them. */
document.addEventListener('keydown', event => {
  if (event.defaultPrevented || event.target.closest('input, select, textarea, .scroll, .chart, pre, summary')) return;
  const visible = ({ element }) => {
    const at = element.getBoundingClientRect();
    return Math.min(at.bottom, innerHeight) - Math.max(at.top, 0);
  };
  const one = replays.filter(one => visible(one) > 80).sort((a, b) => visible(b) - visible(a))[0];
  if (one && event.key.startsWith('Arrow')) one.key(event);
});

// ---------------------------------------------------------------------------------------------------- config, machine

function config() {
  const value = text => text === '' ? h('span', { class: 'hint' }, 'missing') : h('code', {}, text);
  const parts = page.groups.map(group => {
    const run = page.runs[group.runs[0]];
    const own = run.config.filter(([key, here, there]) => here !== there && !(key === 'train.seed' && group.runs.length > 1));
    const keys = (caption, lines) => table(caption, [['key', 'word'], ['this run', 'word'], [run.base, 'word']],
      lines.map(([key, here, there]) => [h('code', {}, key), value(here), value(there)]));
    return h('div', { class: 'card' }, many ? h('h3', {}, label(group)) : null,
      own.length ? keys(`Differences from ${run.base}`, own) : h('p', {}, `Equal to ${run.base}.`),
      h('details', {}, h('summary', {}, `All ${run.config.length} values`), keys('All values of the config', run.config)));
  });
  section('config', 'Config', h('div', { class: 'grid two' }, parts));
}

function machine() {
  const several = page.runs.length > 1;
  const rows = page.runs.flatMap(run => run.sessions.map(one => [...(several ? [run.name] : []), date(one.time), count(one.step),
    one.device + (one.software ? ' (software)' : ''), `${one.driver}, ${one.backend}`, one.model, one.version]));
  if (!rows.length) return;
  const columns = [...(several ? [['run', 'word']] : []), ['started'], ['from step', 'n'], ['device', 'word'], ['driver', 'word'], ['model', 'word'], ['lapwing']];
  section('machine', 'Machine', h('div', { class: 'card' }, table('Each start of the training.', columns, rows, 'Machine')));
}

// ---------------------------------------------------------------------------------------------------- the page

const theme = document.getElementById('theme');
const setTheme = dark => {
  document.documentElement.classList.toggle('dark', dark);
  theme.setAttribute('aria-pressed', dark);
};
const preferred = matchMedia('(prefers-color-scheme: dark)');
setTheme(preferred.matches);
preferred.addEventListener('change', event => setTheme(event.matches));
theme.addEventListener('click', () => setTheme(!document.documentElement.classList.contains('dark')));

/**
 * Appends the report to an element, and links to its sections to another. `turnExtra` returns more elements for a turn of a replay. If
 * `pause` is given, waits for it after each section, and ends if it resolves to false.
 */
async function showReport(data, options) {
  replays = replays.filter(one => one.element.isConnected);
  const parts = [() => head(options.heading || 'h1'), warnings, () => many || tiles(), () => page.runs.length > 1 && runsTable(), results, pairs,
    curves, episodes, cost, config, machine];
  for (const part of parts) {
    use(data);
    ({ main, nav: sections, turnExtra } = options);
    part();
    if (options.pause && !await options.pause()) return;
  }
}

/** Sets the data that `both` and `levels` read. */
function use(data) {
  page = data;
  many = page.groups.length > 1;
  // Numbers the scenes, whose seeds are long.
  scenes = [...new Set(page.runs.flatMap(run => run.episodes.shown.map(episode => episode.scene)))];
}

const isPlaying = () => replays.some(one => one.element.isConnected && one.isPlaying());
return { h, s, table, score, count, duration, plural, chart, both, levels, successes, board, signed, ARROWS, use, showReport, isPlaying };
})();
