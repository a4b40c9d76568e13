// Draws the report from the JSON in #data (reports/html/html_data.h has its form). Every plot is a Vega-Lite specification; when all
// are drawn, <body data-plots="drawn/total"> says so.
'use strict';

const SIDES = ['predicted', 'measured'];
const SIDE_COLOURS = ['#4c78a8', '#f58518'];
const PARTS = ['compute', 'exposed communication', 'bubble', 'host'];
const PART_COLOURS = ['#4c78a8', '#e45756', '#eeca3b', '#bab0ac'];
const CATEGORIES = ['parameters', 'gradients', 'optimizer', 'activations', 'communication', 'workspace'];
const CATEGORY_COLOURS = ['#4c78a8', '#54a24b', '#9d755d', '#f58518', '#e45756', '#bab0ac'];
const SOURCES = ['measured', 'interpolated', 'modelled'];
const SOURCE_COLOURS = ['#54a24b', '#eeca3b', '#e45756'];

// ---- words ---------------------------------------------------------------------------------------------------------------

const significant = (x) => (x === 0 ? '0' : Number(x.toPrecision(3)).toLocaleString('en', {maximumFractionDigits: 3}));

// Units are [from which size on, name, size unless it is that].
function withUnit(x, units) {
  if (x === 0) return '0';
  const [size, unit, scale = size] = units.find(([size]) => Math.abs(x) >= size) || units[units.length - 1];
  return `${significant(x / scale)} ${unit}`;
}
const seconds = (s) => withUnit(s, [[1, 's'], [1e-3, 'ms'], [1e-6, 'µs'], [1e-9, 'ns']]);
const bytes = (b) => withUnit(b, [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB'], [1, 'B']]);
const rate = (side, unit) => `${count(side.tokens_per_s)} ${unit}/s`;
const count = (n) => withUnit(n, [[1e12, 'T'], [1e9, 'B'], [1e6, 'M'], [1e3, 'K'], [1, '']]).trim();
const longTime = (s) => withUnit(s, [[730 * 86400, 'years', 365.25 * 86400], [2 * 86400, 'days', 86400], [3600, 'hours'], [60, 'minutes'], [1, 's']]);
const percent = (share) => `${(100 * share).toFixed(1)} %`;
const signedPercent = (share) => `${share >= 0 ? '+' : '−'}${(100 * Math.abs(share)).toFixed(1)} %`;

// A unit that suits the largest of some values, for an axis.
function timeUnit(largest) {
  return [[1, 's'], [1e-3, 'ms'], [1e-6, 'µs']].find(([size]) => largest >= size) || [1e-9, 'ns'];
}
function byteUnit(largest) {
  return [[2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']].find(([size]) => largest >= size) || [1, 'B'];
}

// ---- the page ------------------------------------------------------------------------------------------------------------

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const plots = [];  // {node, spec}
function plot(section, spec) {
  const node = element('div', {class: 'plot'});
  section.append(node);
  plots.push({node, spec});
}

const config = {
  font: 'system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif',
  view: {stroke: null},
  axisX: {tickCount: 8},  // more would touch each other where numbers are long
  axis: {labelColor: '#66707f', titleColor: '#66707f', titleFontWeight: 'normal', gridColor: '#eceff3', domainColor: '#c9d0d8', tickColor: '#c9d0d8', labelFontSize: 11, titleFontSize: 12},
  legend: {labelColor: '#1c2430', titleColor: '#66707f', titleFontWeight: 'normal', orient: 'top', labelFontSize: 12},
  header: {labelColor: '#1c2430', labelFontSize: 12, titleColor: '#66707f'},
};

function draw({node, spec}) {
  const full = {$schema: 'https://vega.github.io/schema/vega-lite/v6.json', background: null, config, width: 'container', ...spec};
  return vegaEmbed(node, full, {actions: {export: true, source: false, compiled: false, editor: false}, renderer: 'svg', logLevel: vega.Error});  // it warns of fitting the height where rows have theirs
}

const colour = (field, domain, range, title = null) => ({field, type: 'nominal', title, scale: {domain, range}});
const sidesIn = (outcome) => SIDES.filter((side) => outcome.result[side]);

function heading(section, title, text) {
  section.append(element('h2', {}, title));
  if (text) section.append(element('p', {}, text));
}

// ---- sections ------------------------------------------------------------------------------------------------------------

function card(what, value, beside = '', mood = '') {
  return element('div', {class: 'card'}, element('div', {class: 'what'}, what), element('div', {class: `value ${mood}`}, value), element('div', {class: 'beside'}, beside));
}

function largestPeak(side) {
  return Math.max(...side.memory.map((entry) => entry.peak_allocated_bytes));
}

// What has to fit: what the allocator takes from the device, and what is outside it.
function largestNeed(side) {
  return Math.max(...side.memory.map((entry) => entry.peak_reserved_bytes)) + (side.outside_allocator_bytes || 0);
}

function memoryCard({predicted, measured, error}) {
  const main = predicted || measured;
  if (main.device_memory_bytes) {
    const fits = `${main.fits ? 'fits' : 'does not fit'} in ${bytes(main.device_memory_bytes)}; allocated ${bytes(largestPeak(main))}`;
    return card('memory needed', bytes(largestNeed(main)), fits, main.fits ? '' : 'bad');
  }
  const same = error && error.peak_memory_bytes === 0 ? 'measured: the same' : '';
  return card('peak memory', bytes(largestPeak(main)), error && !same ? `measured ${bytes(largestPeak(measured))}` : same);
}

function summary(section, outcome) {
  section.append(element('h1', {}, outcome.title));
  if (outcome.description) section.append(element('p', {}, outcome.description));
  section.append(element('ul', {class: 'facts'}, ...outcome.facts.map((fact) => element('li', {}, fact))));
  const {predicted, measured, error} = outcome.result;
  const beside = (read) => (predicted && measured ? `measured ${read(measured)}` : '');
  const main = predicted || measured;
  const name = predicted ? 'predicted' : 'measured';
  const cards = element('div', {class: 'cards'});
  cards.append(card(`step time, ${name}`, seconds(main.step_time_s.p50), beside((s) => seconds(s.step_time_s.p50))));
  if (error) {
    const mood = outcome.result.within_tolerance ? 'good' : 'bad';
    cards.append(card('error of the step time', signedPercent(error.step_time), outcome.result.within_tolerance ? 'within tolerance' : 'outside tolerance', mood));
  }
  cards.append(card('throughput', rate(main, outcome.unit), beside((s) => rate(s, outcome.unit))));
  if (main.training) {
    const {tokens, time_s: time, device_hours: hours} = main.training;
    cards.append(card(`training, ${count(tokens)} ${outcome.unit}`, longTime(time), `${count(hours)} device hours, without checkpoints, evaluation and failures`));
  }
  if (main.mfu !== null) cards.append(card('MFU (PaLM)', percent(main.mfu), beside((s) => percent(s.mfu))));
  cards.append(memoryCard(outcome.result));
  if (main.host_memory_of_node_bytes) cards.append(card('host memory of a node', bytes(main.host_memory_of_node_bytes), 'whether the host has it is not checked'));
  if (main.bubble_fraction > 0) cards.append(card('bubble', percent(main.bubble_fraction), beside((s) => percent(s.bubble_fraction))));
  section.append(cards);
}

function stepTimes(section, outcome) {
  const sides = sidesIn(outcome);
  const isConstant = ({p10, p90}) => p10 === p90;
  if (sides.every((side) => isConstant(outcome.result[side].step_time_s))) return;
  heading(section, 'Step time', 'Bars from the 10th to the 90th percentile of one step, the median as a line; every measured step and every simulated one as a dot.');
  const intervals = sides.map((side) => ({side, ...outcome.result[side].step_time_s}));
  const [scale, unit] = timeUnit(Math.max(...intervals.map((row) => row.p50)));
  const values = intervals.map(({side, p10, p50, p90}) => ({side, p10: p10 / scale, p50: p50 / scale, p90: p90 / scale}));
  const dots = sides.flatMap((side) => (outcome.samples[side] || []).map((value, i) => ({side, step: i, time: value / scale})));
  const y = {field: 'side', type: 'nominal', title: null, sort: SIDES};
  plot(section, {
    height: {step: 56},
    layer: [
      {data: {values: dots}, mark: {type: 'point', filled: true, size: 18, opacity: 0.35, yOffset: 16}, encoding: {y, x: {field: 'time', type: 'quantitative', title: `time of a step, ${unit}`, scale: {zero: false}}, color: {...colour('side', SIDES, SIDE_COLOURS), legend: null}, tooltip: [{field: 'time', format: '.4s', title: unit}]}},
      {data: {values}, mark: {type: 'bar', height: 12, cornerRadius: 3, opacity: 0.55}, encoding: {y, x: {field: 'p10', type: 'quantitative'}, x2: {field: 'p90'}, color: {...colour('side', SIDES, SIDE_COLOURS), legend: null}, tooltip: ['p10', 'p50', 'p90'].map((field) => ({field, type: 'quantitative', format: '.4s', title: `${field}, ${unit}`}))}},
      {data: {values}, mark: {type: 'tick', thickness: 3, size: 26}, encoding: {y, x: {field: 'p50', type: 'quantitative'}, color: {...colour('side', SIDES, SIDE_COLOURS), legend: null}}},
    ],
  });
}

function breakdown(section, outcome) {
  heading(section, 'Where the step goes', 'Every instant of a rank\'s step is one of these, averaged over ranks.');
  const [scale, unit] = timeUnit(Math.max(...sidesIn(outcome).map((side) => outcome.result[side].step_time_s.p50)));
  const values = outcome.breakdown.map((row) => ({...row, time: row.seconds / scale}));
  const encoding = (y) => ({
    y,
    x: {field: 'time', type: 'quantitative', title: unit, stack: 'zero'},
    color: colour('part', PARTS, PART_COLOURS),
    order: {field: 'order', type: 'ordinal'},
    tooltip: [{field: 'part'}, {field: 'time', format: '.4s', title: unit}],
  });
  const transform = [{calculate: `indexof(${JSON.stringify(PARTS)}, datum.part)`, as: 'order'}];
  plot(section, {data: {values}, transform, height: {step: 34}, mark: {type: 'bar'}, encoding: encoding({field: 'side', type: 'nominal', title: null, sort: SIDES})});
}

function bubbles(section, outcome) {
  const names = [...new Set(outcome.roles.map((row) => row.name))];
  if (names.length < 2) return;
  heading(section, 'By role', 'The same, role by role: of a pipeline, its stages.');
  const [scale, unit] = timeUnit(Math.max(...sidesIn(outcome).map((side) => outcome.result[side].step_time_s.p50)));
  const values = outcome.roles.map((row) => ({...row, time: row.seconds / scale}));
  plot(section, {
    data: {values},
    transform: [{calculate: `indexof(${JSON.stringify(PARTS)}, datum.part)`, as: 'order'}],
    height: {step: names.length > 16 ? 12 : 18},
    mark: {type: 'bar'},
    encoding: {
      y: {field: 'name', type: 'nominal', title: null, sort: names},
      yOffset: {field: 'side', sort: SIDES},
      x: {field: 'time', type: 'quantitative', title: unit, stack: 'zero'},
      color: colour('part', PARTS, PART_COLOURS),
      opacity: {field: 'side', type: 'ordinal', sort: SIDES, scale: {domain: SIDES, range: [1, 0.6]}, title: null, legend: sidesIn(outcome).length > 1 ? {} : null},
      order: {field: 'order', type: 'ordinal'},
      tooltip: [{field: 'name'}, {field: 'side'}, {field: 'part'}, {field: 'time', format: '.4s', title: unit}],
    },
  });
}

function attribution(section, outcome) {
  const rows = outcome.result.by_operator;
  if (!rows.length) return;
  const both = sidesIn(outcome).length === 2;
  if (both) {
    heading(section, 'Where the error comes from', 'Predicted less measured time of each kind of operator, as a share of the measured step: the bars add up to the error. "wait …" is the compute stream waiting, "dispatch" the gaps between operators.');
    const values = rows.map((row) => ({operator: row.operator, share: row.contribution})).filter((row) => Math.abs(row.share) > 1e-6);
    plot(section, {
      data: {values},
      height: {step: 18},
      mark: {type: 'bar', cornerRadiusEnd: 2},
      encoding: {
        y: {field: 'operator', type: 'nominal', title: null, sort: values.map((row) => row.operator)},
        x: {field: 'share', type: 'quantitative', title: 'contribution to the error', axis: {format: '+.1%'}},
        color: {condition: {test: 'datum.share > 0', value: '#e45756'}, value: '#4c78a8'},
        tooltip: [{field: 'operator'}, {field: 'share', format: '+.2%'}],
      },
    });
  }
  heading(section, 'Time by operator', both ? '' : 'What the compute stream runs and waits for; adds up to the step.');
  const key = (side) => `${side}_s`;
  const largest = Math.max(...rows.flatMap((row) => SIDES.map((side) => row[key(side)] || 0)));
  const [scale, unit] = timeUnit(largest);
  const values = rows.flatMap((row) => sidesIn(outcome).map((side) => ({operator: row.operator, side, time: (row[key(side)] || 0) / scale})));
  const order = [...rows].sort((a, b) => (b.predicted_s || b.measured_s || 0) - (a.predicted_s || a.measured_s || 0)).map((row) => row.operator);
  plot(section, {
    data: {values},
    height: {step: both ? 12 : 18},
    mark: {type: 'bar', cornerRadiusEnd: 2},
    encoding: {
      y: {field: 'operator', type: 'nominal', title: null, sort: order},
      yOffset: {field: 'side', sort: SIDES},
      x: {field: 'time', type: 'quantitative', title: `${unit} a step`},
      color: {...colour('side', SIDES, SIDE_COLOURS), legend: both ? {} : null},
      tooltip: [{field: 'operator'}, {field: 'side'}, {field: 'time', format: '.4s', title: unit}],
    },
  });
}

const ACTIONS = ['forward', 'backward', 'input gradient', 'weight gradient'];
const ACTION_COLOURS = ['#4c78a8', '#54a24b', '#54a24b', '#b279a2'];

function schedule(section, outcome) {
  if (!outcome.actions.length) return;
  const pairs = outcome.actions.some((action) => action.half);
  heading(section, 'Schedule', `The pipeline as it ran: a forward or backward of one micro-batch is a bar, what is free between them the bubble.${pairs ? ' One above the other take turns, layer by layer.' : ''} Drag to move, scroll to zoom.`);
  const end = Math.max(...outcome.timelines.map((timeline) => timeline.end_s));
  const [scale, unit] = timeUnit(end);
  const kinds = ACTIONS.filter((kind) => outcome.actions.some((action) => action.kind === kind));
  for (const side of sidesIn(outcome)) {
    const values = outcome.actions.filter((action) => action.side === side).map((action) => ({...action, rank: `rank ${action.rank}`, start: action.start_s / scale, end: action.end_s / scale, time: (action.end_s - action.start_s) / scale}));
    const ranks = [...new Set(values.map((row) => row.rank))];
    const y = {field: 'rank', type: 'nominal', title: null, sort: ranks};
    const x = {field: 'start', type: 'quantitative', title: unit, scale: {domain: [0, end / scale], nice: false}};
    // Half 0 is the whole height, 1 and 2 are the upper and the lower half of what runs beside something.
    const bars = (half, band, yOffset) => ({
      transform: [{filter: `datum.half === ${half}`}],
      mark: {type: 'bar', height: {band}, yOffset, clip: true, stroke: 'white', strokeWidth: 0.5},
      encoding: {
        y, x, x2: {field: 'end'},
        color: colour('kind', kinds, kinds.map((kind) => ACTION_COLOURS[ACTIONS.indexOf(kind)])),
        tooltip: [{field: 'kind'}, {field: 'stage'}, {field: 'micro_batch', title: 'micro-batch'}, {field: 'time', format: '.4s', title: `time, ${unit}`}],
      },
    });
    const numbers = (half, yOffset) => ({
      transform: [{filter: `datum.half === ${half}`}],
      mark: {type: 'text', color: 'white', fontSize: half ? 8 : 10, yOffset, clip: true},
      encoding: {y, x: {field: 'middle', type: 'quantitative'}, text: {field: 'micro_batch'}},
    });
    const layer = [{...bars(0, 0.86, 0), params: [{name: 'zoom', select: {type: 'interval', encodings: ['x']}, bind: 'scales'}]}];
    if (pairs) layer.push(bars(1, 0.42, -4.7), bars(2, 0.42, 4.7));
    if (values.length <= 160) layer.push(numbers(0, 0), ...(pairs ? [numbers(1, -4.7), numbers(2, 4.7)] : []));
    plot(section, {title: {text: side, anchor: 'start', fontSize: 13, color: '#1c2430', fontWeight: 500}, data: {values}, transform: [{calculate: '(datum.start + datum.end) / 2', as: 'middle'}], height: {step: 22}, layer});
  }
}

function timelines(section, outcome) {
  if (!outcome.timelines.length) return;
  heading(section, 'Timeline', 'One step: drag to move, scroll to zoom. Operators that follow each other closely are one bar, in the colour of the kind that takes most of it; the paler, the more idle time is in it.');
  const used = new Set(outcome.timelines.flatMap((timeline) => timeline.spans.map((span) => span.group)));
  const groups = outcome.groups.filter((group) => used.has(group.name));
  const end = Math.max(...outcome.timelines.map((timeline) => timeline.end_s));
  const [scale, unit] = timeUnit(end);
  for (const side of sidesIn(outcome)) {
    const values = outcome.timelines.filter((timeline) => timeline.side === side).flatMap((timeline) =>
      timeline.spans.map((span) => ({lane: `rank ${timeline.rank} ${span.lane}`, group: span.group, name: span.name, start: span.start_s / scale, end: span.end_s / scale, time: (span.end_s - span.start_s) / scale, busy: span.busy_s / Math.max(span.end_s - span.start_s, 1e-12)})));
    if (!values.length) continue;
    const lanes = outcome.timelines.filter((timeline) => timeline.side === side).flatMap((timeline) => timeline.lanes.map((lane) => `rank ${timeline.rank} ${lane}`)).filter((lane) => values.some((row) => row.lane === lane));
    plot(section, {
      title: {text: side, anchor: 'start', fontSize: 13, color: '#1c2430', fontWeight: 500},
      data: {values},
      height: {step: 20},
      params: [{name: 'zoom', select: {type: 'interval', encodings: ['x']}, bind: 'scales'}],
      mark: {type: 'bar', height: {band: 0.86}, clip: true},
      encoding: {
        y: {field: 'lane', type: 'nominal', title: null, sort: lanes, scale: {domain: lanes}},
        x: {field: 'start', type: 'quantitative', title: unit, scale: {domain: [0, end / scale], nice: false}},
        x2: {field: 'end'},
        color: colour('group', groups.map((group) => group.name), groups.map((group) => group.colour)),
        opacity: {field: 'busy', type: 'quantitative', scale: {domain: [0, 1], range: [0.12, 1]}, legend: null},
        tooltip: [{field: 'name'}, {field: 'group'}, {field: 'busy', format: '.0%', title: 'filled'}, {field: 'start', format: '.5s', title: `start, ${unit}`}, {field: 'time', format: '.4s', title: `time, ${unit}`}],
      },
    });
  }
}

function losses(section, outcome) {
  const {measured} = outcome.result;
  if (!measured || !measured.losses || measured.losses.length < 2) return;
  heading(section, 'Loss', 'Of every step of the live run, warm-up included: the mean over ranks and micro-batches.');
  const values = measured.losses.map((loss, i) => ({step: i + 1, loss}));
  plot(section, {
    data: {values},
    height: 160,
    mark: {type: 'line', color: SIDE_COLOURS[1], point: values.length <= 60 ? {filled: true, size: 30, color: SIDE_COLOURS[1]} : false},
    encoding: {
      x: {field: 'step', type: 'quantitative', title: 'step', scale: {nice: false}, axis: {tickMinStep: 1, format: 'd'}},
      y: {field: 'loss', type: 'quantitative', title: 'loss', scale: {zero: false}},
      tooltip: [{field: 'step'}, {field: 'loss', format: '.5s'}],
    },
  });
}

function memory(section, outcome) {
  if (!outcome.memory.length) return;
  heading(section, 'Memory', 'What is allocated on the device in the course of a step, by what it is for.');
  const full = (entry) => Math.max(...entry.points.map((point) => Object.values(point.bytes).reduce((a, b) => a + b, 0)));
  const fullest = outcome.memory.reduce((a, b) => (full(b) > full(a) ? b : a));
  const [scale, unit] = byteUnit(full(fullest));
  const limit = outcome.result.predicted && outcome.result.predicted.device_memory_bytes;
  const name = (entry) => `${entry.side}, rank ${entry.rank}`;
  const values = outcome.memory.flatMap((entry) => entry.points.flatMap((point) => CATEGORIES.map((category) => ({curve: name(entry), category, time: point.time_s, amount: (point.bytes[category] || 0) / scale}))));
  const [timeScale, timeName] = timeUnit(Math.max(...values.map((row) => row.time)));
  for (const row of values) row.time /= timeScale;
  const curves = outcome.memory.map(name);
  const layers = [{
    mark: {type: 'area', interpolate: 'step-after'},
    encoding: {
      x: {field: 'time', type: 'quantitative', title: timeName, scale: {nice: false}},
      y: {field: 'amount', type: 'quantitative', title: unit, stack: 'zero'},
      color: colour('category', CATEGORIES, CATEGORY_COLOURS),
      order: {field: 'order', type: 'ordinal'},
    },
  }];
  if (limit && limit / scale < 3 * (full(fullest) / scale))
    layers.push({data: {values: [{limit: limit / scale}]}, mark: {type: 'rule', strokeDash: [5, 4], color: '#b3372f'}, encoding: {y: {field: 'limit', type: 'quantitative'}, tooltip: [{field: 'limit', title: `the device's memory, ${unit}`, format: '.4s'}]}});
  plot(section, {
    height: 260,
    data: {values},
    params: curves.length > 1 ? [{name: 'curve', value: name(fullest), bind: {input: 'select', options: curves, name: 'of '}}] : [{name: 'curve', value: curves[0]}],
    transform: [{filter: 'datum.curve === curve'}, {calculate: `indexof(${JSON.stringify(CATEGORIES)}, datum.category)`, as: 'order'}],
    layer: layers,
  });
}

function scaling(section, outcome) {
  const {points, note} = outcome.scaling;
  if (!points.length && !note) return;
  heading(section, 'Scaling', 'Predicted with more data-parallel replicas, each with the same batch. Efficiency: throughput per device over that of the smallest size that fits.');
  if (points.length > 1) {
    const first = points[0].tokens_per_s / points[0].devices;
    const values = points.map((point) => ({devices: point.devices, efficiency: point.tokens_per_s / point.devices / first, step: seconds(point.step_time_s), throughput: rate(point, outcome.unit)}));
    plot(section, {
      data: {values},
      height: 240,
      mark: {type: 'line', point: {filled: true, size: 50}, color: SIDE_COLOURS[0]},
      encoding: {
        x: {field: 'devices', type: 'quantitative', scale: {type: 'log', base: 2, nice: false}, axis: {values: points.map((point) => point.devices), format: 'd', grid: false}, title: 'devices'},
        y: {field: 'efficiency', type: 'quantitative', axis: {format: '.0%'}, scale: {domain: [0, Math.max(1, ...values.map((row) => row.efficiency))]}, title: 'efficiency'},
        tooltip: [{field: 'devices'}, {field: 'efficiency', format: '.1%'}, {field: 'step', title: 'step time'}, {field: 'throughput'}],
      },
    });
  }
  if (note) section.append(element('p', {class: 'note'}, note));
}

function costs(section, outcome) {
  const {predicted} = outcome.result;
  if (!predicted) return;
  heading(section, 'Where the costs come from', 'Shares of the predicted busy time: measured at this very shape, interpolated between measured ones, or modelled (roofline, datasheet).');
  const values = SOURCES.map((source) => ({source, share: predicted.cost_sources[source]}));
  plot(section, {
    data: {values},
    height: 34,
    mark: {type: 'bar'},
    encoding: {
      x: {field: 'share', type: 'quantitative', stack: 'normalize', title: null, axis: {format: '.0%'}},
      color: colour('source', SOURCES, SOURCE_COLOURS),
      tooltip: [{field: 'source'}, {field: 'share', format: '.1%'}],
    },
  });
  const rows = Object.entries(outcome.sources).map(([name, text]) => element('tr', {}, element('td', {}, name), element('td', {}, text)));
  if (rows.length) section.append(element('details', {}, element('summary', {}, `profile ${outcome.result.profile}`), element('table', {}, ...rows)));
}

function scenario(section, outcome) {
  heading(section, 'Scenario');
  section.append(element('details', {}, element('summary', {}, 'with every default filled in'), element('pre', {}, outcome.scenario)));
}

// ---- what a search found --------------------------------------------------------------------------------------------------

// Columns of a configuration, of which those are shown in which some differ.
const CHOICES = [
  ['devices', (one) => one.devices],
  ['kind', (one) => one.parallel.data.kind],
  ['data', (one) => one.parallel.data.size],
  ['sharding', (one) => one.parallel.data.sharding],
  ['offload', (one) => one.parallel.data.offload],
  ['shards', (one) => one.parallel.data.shard_size],
  ['overlap', (one) => one.parallel.data.overlap],
  ['tensor', (one) => one.parallel.tensor.size],
  ['sequence', (one) => one.parallel.tensor.sequence],
  ['tensor overlap', (one) => one.parallel.tensor.overlap],
  ['pipeline', (one) => one.parallel.pipeline.size],
  ['virtual stages', (one) => one.parallel.pipeline.virtual_stages],
  ['schedule', (one) => one.parallel.pipeline.schedule],
  ['layers of stages', (one) => balance(one.parallel.pipeline.balance)],
  ['context', (one) => one.parallel.context.size],
  ['context kind', (one) => one.parallel.context.kind],
  ['expert', (one) => one.parallel.expert.size],
  ['expert tensor', (one) => one.parallel.expert.tensor],
  ['dispatcher', (one) => one.parallel.expert.dispatcher],
  ['in turns', (one) => one.parallel.expert.overlap],
  ['micro', (one) => one.batch.micro],
  ['accumulate', (one) => one.batch.accumulate],
  ['recompute', (one) => one.recompute],
  ['of layers', (one) => one.recompute_layers],
  ['activations on the host', (one) => one.activation_offload],
];

// "1 + 29 × 2 + 1": equal neighbours once.
function balance(layers) {
  if (!layers?.length || new Set(layers).size === 1) return undefined;
  const runs = [];
  for (const n of layers) {
    if (runs.at(-1)?.n === n) ++runs.at(-1).times;
    else runs.push({n, times: 1});
  }
  return runs.map(({n, times}) => (times > 1 ? `${times} × ${n}` : `${n}`)).join(' + ').replaceAll(' ', '\u00a0');
}

// As the table on the console: what the allocator reserves beside what is allocated may not fit.
const mayNotFit = (one) => one.may_not_fit === true;

function configuration(one, columns) {
  return columns.filter(([, read]) => read(one) !== undefined).map(([name, read]) => `${name} ${read(one)}`).join(', ');
}

function search(main, data) {
  const section = element('section', {class: 'outcome', id: 'search'});
  main.append(section);
  section.append(element('h1', {}, `${data.scenario}: search`));
  for (const line of data.subject) section.append(element('p', {}, line));
  const cards = element('div', {class: 'cards'});
  cards.append(card('simulated', count(data.evaluated), `${count(data.combinations)} combinations, ${count(data.illegal)} illegal`));
  cards.append(card('do not fit', count(data.infeasible), data.refused ? `${count(data.refused)} refused` : ''));
  if (data.best) cards.append(card('the fastest step', `${data.best.step_time_is_lower_bound ? '> ' : ''}${seconds(data.best.step_time_s)}`, `${mayNotFit(data.best) ? '? ' : ''}${bytes(data.best.memory_bytes)} on a device`));
  cards.append(card('took', seconds(data.wall_s), `${count(data.configurations_per_s)} configurations/s`));
  section.append(cards);
  const all = [...data.pareto.map((one) => ({...one, front: true})), ...data.top.map((one) => ({...one, front: false}))];
  const columns = CHOICES.filter(([, read]) => new Set(all.map(read)).size > 1);
  if (data.pareto.length > 1) {
    heading(section, 'Step time and memory', 'Configurations of the Pareto front: none is both faster and smaller. Beside them the fastest ones.');
    const [scale, unit] = timeUnit(Math.max(...all.map((one) => one.step_time_s)));
    const [memoryScale, memoryUnit] = byteUnit(Math.max(...all.map((one) => one.memory_bytes)));
    const key = (one) => `${one.step_time_s} ${one.memory_bytes}`;
    const onFront = new Set(data.pareto.map(key));
    const values = all.filter((one) => one.front || !onFront.has(key(one))).map((one) => ({time: one.step_time_s / scale, memory: one.memory_bytes / memoryScale, of: one.front ? 'Pareto front' : 'among the fastest', what: configuration(one, columns)}));
    const x = {field: 'memory', type: 'quantitative', title: `memory of a device, ${memoryUnit}`, scale: {zero: false}};
    const y = {field: 'time', type: 'quantitative', title: `step, ${unit}`, scale: {zero: false}};
    const tooltip = [{field: 'what', title: ' '}, {field: 'time', format: '.4s', title: `step, ${unit}`}, {field: 'memory', format: '.4s', title: `memory, ${memoryUnit}`}];
    plot(section, {
      height: 300,
      data: {values},
      layer: [
        {transform: [{filter: "datum.of === 'Pareto front'"}], mark: {type: 'line', interpolate: 'step-after', color: '#c9d0d8', strokeWidth: 1.5}, encoding: {x, y, order: {field: 'memory'}}},
        {mark: {type: 'point', filled: true, size: 60, opacity: 0.85}, encoding: {x, y, tooltip, color: colour('of', ['Pareto front', 'among the fastest'], SIDE_COLOURS)}},
      ],
    });
  }
  if (data.top.length) {
    const remarks = [];
    if (!columns.length) remarks.push('In nothing that was searched do they differ.');
    if (data.top.some((one) => one.step_time_is_lower_bound)) remarks.push('A time with a > is without what collectives of different groups take from each other on network cards; --full predicts it.');
    if (data.top.some(mayNotFit)) remarks.push('Memory with a ? fits as allocated; what the allocator reserves beside that may not (--full predicts it).');
    remarks.push('Each row\'s hint has the options that set it.');
    heading(section, 'The fastest', remarks.join(' '));
    const head = element('tr', {}, ...columns.map(([name]) => element('th', {}, name)), ...['step', 'memory', 'throughput', 'MFU'].map((name) => element('th', {class: 'number'}, name)));
    const rows = data.top.map((one) => {
      const {predicted} = one;
      const throughput = [predicted.tokens_per_s ? rate(predicted, 'tokens') : '', predicted.mfu ? percent(predicted.mfu) : ''];
      const numbers = [`${one.step_time_is_lower_bound ? '> ' : ''}${seconds(one.step_time_s)}`, `${mayNotFit(one) ? '? ' : ''}${bytes(one.memory_bytes)}`, ...throughput];
      return element('tr', {title: one.set.map((option) => `--set ${option}`).join(' ')}, ...columns.map(([, read]) => element('td', {}, `${read(one) ?? '–'}`)), ...numbers.map((text) => element('td', {class: 'number'}, text)));
    });
    section.append(element('table', {}, head, ...rows));
  }
  const reasons = Object.values(data.reasons).flatMap((by) => Object.entries(by));
  if (reasons.length)
    section.append(element('details', {}, element('summary', {}, 'what was left out, and why'), element('table', {}, ...reasons.map(([reason, n]) => element('tr', {}, element('td', {class: 'number'}, count(n)), element('td', {}, reason))))));
}

// ---- all of it -----------------------------------------------------------------------------------------------------------

async function report() {
  const data = JSON.parse(document.getElementById('data').textContent);
  const main = document.getElementById('report');
  main.replaceChildren();
  if (data.search) search(main, data.search);
  if (data.outcomes.length > 1)
    main.append(element('nav', {}, ...data.outcomes.map((outcome, i) => element('a', {href: `#outcome-${i}`}, outcome.title))));
  data.outcomes.forEach((outcome, i) => {
    const section = element('section', {class: 'outcome', id: `outcome-${i}`});
    main.append(section);
    for (const part of [summary, stepTimes, breakdown, bubbles, attribution, schedule, timelines, losses, memory, scaling, costs, scenario]) part(section, outcome);
  });
  main.append(element('footer', {}, `windtunnel ${data.version} · scenario ${[...(data.search ? [data.search.scenario_digest] : []), ...data.outcomes.map((outcome) => outcome.result.scenario_digest)].join(', ')}`));
  let drawn = 0;
  for (const one of plots) {
    try {
      await draw(one);
      ++drawn;
    } catch (error) {
      console.error(error);
      one.node.textContent = `This plot could not be drawn: ${error}`;
    }
  }
  document.body.dataset.plots = `${drawn}/${plots.length}`;
}

report();
