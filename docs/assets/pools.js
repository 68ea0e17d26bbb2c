// Every pool on one region: drag a cell up or down, or use the arrow keys, and see what each of them answers.
// Plain SVG and JavaScript, nothing else. The formulas are those of learnpool/ops/responses.py.
"use strict";
(() => {
  const BEGIN = [0.1, 0.4, 0.2, 0.3, 0.9, 0.6, 0.0, 0.2, 0.5];
  const SCALARS = {  // learned numbers: start, range, what they are
    a: [0.5, 0, 1, "a of mixed"], beta: [2, -10, 10, "β of soft"], r: [4, 0.1, 20, "r of LSE"], p: [3, 1, 20, "p of GeM"],
  };
  const BLUR = [1, 2, 1, 2, 4, 2, 1, 2, 1].map((v) => v / 16);
  const MASK = [-1, -1, -1, -1, 4, -1, -1, -1, -1];  // of the gate: is the centre above its neighbours?
  const FILTER = [0, -0.25, 0, -0.25, 2, -0.25, 0, -0.25, 0];
  const EPSILON = 1e-6;

  const sum = (x) => x.reduce((total, v) => total + v, 0);
  const mean = (x) => sum(x) / x.length;
  const dot = (w, x) => sum(w.map((v, i) => v * x[i]));
  const most = (x) => Math.max(...x);
  const sigmoid = (v) => 1 / (1 + Math.exp(-v));
  const std = (x) => Math.sqrt(mean(x.map((v) => (v - mean(x)) ** 2)));
  const soft = (x, beta) => {
    const top = most(x.map((v) => beta * v));
    const e = x.map((v) => Math.exp(beta * v - top));
    return dot(e, x) / sum(e);
  };
  const logSumExp = (x, r) => most(x) + Math.log(mean(x.map((v) => Math.exp(r * (v - most(x)))))) / r;
  const power = (x, p) => {
    const u = x.map((v) => Math.max(v, EPSILON));
    return most(u) * mean(u.map((v) => (v / most(u)) ** p)) ** (1 / p);
  };
  const sorted = (x) => [...x].sort((l, r) => r - l);

  const POOLS = [
    ["max", "max", (x) => most(x)],
    ["min", "min", (x) => Math.min(...x)],
    ["avg", "average", (x) => mean(x)],
    ["median", "median", (x) => sorted(x)[4]],
    ["mixed", "mixed", (x, s) => s.a * most(x) + (1 - s.a) * mean(x)],
    ["gated", "gated", (x) => { const g = sigmoid(dot(MASK, x)); return g * most(x) + (1 - g) * mean(x); }],
    ["soft", "soft", (x, s) => soft(x, s.beta)],
    ["lse", "LSE", (x, s) => logSumExp(x, s.r)],
    ["gem", "GeM", (x, s) => power(x, s.p)],
    ["lp2", "Lp (p = 2)", (x) => power(x.map(Math.abs), 2)],
    ["rank", "rank (top 3)", (x) => mean(sorted(x).slice(0, 3))],
    ["blur", "blur", (x) => dot(BLUR, x)],
    ["filter", "filter", (x) => dot(FILTER, x)],
    ["std", "std", (x) => std(x)],
  ];

  const make = (name, attributes, parent, text) => {
    const svg = ["svg", "g", "rect", "text", "line", "circle", "title"].includes(name);
    const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    if (parent) parent.append(element);
    return element;
  };
  const clamp = (v) => Math.min(1, Math.max(-1, v));
  const format = (v) => (Math.abs(v) < 0.005 ? "0.00" : v.toFixed(2).replace("-", "−"));
  const shade = (v, scale) => {  // orange counts for, blue against
    const strength = Math.min(1, Math.abs(v) / scale);
    return `rgba(${v < 0 ? "31, 119, 180" : "230, 97, 1"}, ${strength.toFixed(3)})`;
  };

  // A link may carry a region and the scalars: pools.html#cells=1,0,…&beta=3
  const given = new URLSearchParams(location.hash.slice(1));
  const cells = (given.get("cells") ? given.get("cells").split(",").map(Number) : BEGIN).map(clamp);
  const scalars = Object.fromEntries(Object.entries(SCALARS).map(([k, v]) => [k, Number(given.get(k) ?? v[0])]));

  const measureShares = (pool) => cells.map((_, i) => {  // ∂y/∂x, by a small step each way
    const step = 1e-5, up = [...cells], down = [...cells];
    up[i] += step;
    down[i] -= step;
    return (pool(up, scalars) - pool(down, scalars)) / (2 * step);
  });

  const build = (root) => {
    root.textContent = "";
    const left = make("div", { class: "pools-left" }, root);
    const region = make("svg", { viewBox: "0 0 240 240", class: "pools-region" }, left);
    const boxes = cells.map((_, i) => {
      const x = 80 * (i % 3), y = 80 * Math.floor(i / 3);
      const g = make("g", { tabindex: 0, role: "slider", "aria-label": `cell ${i + 1}`, "aria-valuemin": -1, "aria-valuemax": 1 }, region);
      const back = make("rect", { x: x + 2, y: y + 2, width: 76, height: 76, rx: 6, class: "pools-cell" }, g);
      const fill = make("rect", { x: x + 2, y: y + 2, width: 76, height: 76, rx: 6 }, g);
      const label = make("text", { x: x + 40, y: y + 46, "text-anchor": "middle" }, g);
      const set = (v) => { cells[i] = clamp(Math.round(v * 100) / 100); draw(); };
      g.addEventListener("pointerdown", (event) => {
        const from = event.clientY, value = cells[i];
        g.setPointerCapture(event.pointerId);
        g.onpointermove = (move) => set(value + (from - move.clientY) / 100);
        g.onpointerup = g.onpointercancel = () => { g.onpointermove = null; };
      });
      g.addEventListener("keydown", (event) => {
        const step = { ArrowUp: 0.05, ArrowRight: 0.05, ArrowDown: -0.05, ArrowLeft: -0.05 }[event.key];
        if (step) { event.preventDefault(); set(cells[i] + step); }
      });
      return { g, back, fill, label };
    });
    make("p", { class: "pools-hint" }, left, "Drag a cell up or down.");
    const right = make("div", { class: "pools-right" }, root);
    const below = make("div", { class: "pools-below" }, root);
    for (const [key, [, low, high, what]] of Object.entries(SCALARS)) {
      const label = make("label", {}, below, `${what} `);
      const shown = make("output", {}, label, format(scalars[key]));
      const input = make("input", { type: "range", min: low, max: high, step: 0.05, value: scalars[key] }, label);
      input.addEventListener("input", () => { scalars[key] = Number(input.value); shown.textContent = format(scalars[key]); draw(); });
    }
    const buttons = make("p", {}, below);
    for (const [name, values] of [["Start again", BEGIN], ["One bright cell", [0, 0, 0, 0, 1, 0, 0, 0, 0]], ["An edge", [0, 0.5, 1, 0, 0.5, 1, 0, 0.5, 1]],
      ["All negative", BEGIN.map((v) => -v)]]) {
      make("button", { type: "button" }, buttons, name).addEventListener("click", () => { cells.splice(0, 9, ...values); draw(); });
    }

    const rows = POOLS.map(([id, name, pool]) => {
      const row = make("div", { class: "pools-row", "data-pool": id }, right);
      make("span", { class: "pools-name" }, row, name);
      const bar = make("svg", { viewBox: "0 0 216 20", class: "pools-bar" }, row);
      make("line", { x1: 8, y1: 10, x2: 208, y2: 10, class: "pools-axis" }, bar);
      make("line", { x1: 108, y1: 4, x2: 108, y2: 16, class: "pools-axis" }, bar);
      const point = make("circle", { cy: 10, r: 4, class: "pools-point" }, bar);
      const value = make("span", { class: "pools-value" }, row);
      const map = make("svg", { viewBox: "0 0 30 30", class: "pools-map" }, row);
      make("title", {}, map, "how much each cell counts: orange for, blue against");
      const taps = cells.map((_, i) => make("rect", { x: 10 * (i % 3) + 0.5, y: 10 * Math.floor(i / 3) + 0.5, width: 9, height: 9, class: "pools-tap" }, map));
      return { row, pool, point, value, taps };
    });

    const draw = () => {
      boxes.forEach(({ g, fill, label }, i) => {
        fill.setAttribute("fill", shade(cells[i], 1));
        label.textContent = format(cells[i]);
        g.setAttribute("aria-valuenow", cells[i]);
      });
      for (const { row, pool, point, value, taps } of rows) {
        const y = pool(cells, scalars);
        row.dataset.value = y;
        value.textContent = format(y);
        point.setAttribute("cx", 108 + 100 * clamp(y));
        point.classList.toggle("pools-outside", Math.abs(y) > 1);
        const shares = measureShares(pool);
        taps.forEach((tap, i) => tap.setAttribute("fill", shade(shares[i], 1)));
      }
    };
    draw();
  };

  const start = () => document.querySelectorAll(".pools-figure").forEach(build);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
