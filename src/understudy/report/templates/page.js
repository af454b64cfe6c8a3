"use strict";

(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const show = () => button.setAttribute("aria-pressed", String(isDark()));
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    show();
  });
  system.addEventListener("change", show);
  show();
})();

(() => {
  // On paper everything is open; afterwards it is as it was.
  let closed = [];
  const open = () => {
    closed = closed.concat([...document.querySelectorAll("details:not([open])")]);
    closed.forEach((each) => { each.open = true; });
  };
  const restore = () => {
    closed.forEach((each) => { each.open = false; });
    closed = [];
  };
  const print = matchMedia("print");
  print.addEventListener("change", () => (print.matches ? open() : restore()));
  addEventListener("beforeprint", open);
  addEventListener("afterprint", restore);
})();

(() => {
  const map = document.getElementById("map-field");
  if (!map) return;
  const texts = JSON.parse(document.getElementById("map-texts").textContent);
  const svg = map.querySelector("svg");
  const view = svg.viewBox.baseVal;
  const ring = document.getElementById("map-chosen");
  const readout = document.getElementById("map-readout");
  const hint = document.getElementById("map-help");
  const points = [...svg.querySelectorAll(".point")].map((dot) => ({
    dot,
    x: dot.cx.baseVal.value,
    y: dot.cy.baseVal.value,
    ...texts[Number(dot.dataset.number)],
  }));
  const boxes = [...document.querySelectorAll(".filters input")];
  let chosen = null;

  const shown = () => points.filter((point) => !point.dot.hasAttribute("data-off"));
  const element = (name, kind, words) => {
    const made = document.createElement(name);
    made.className = kind;
    made.textContent = words;
    return made;
  };
  const choose = (point) => {
    chosen = point;
    ring.toggleAttribute("data-off", !point);
    if (!point) {
      readout.replaceChildren(hint);
      return;
    }
    ring.setAttribute("cx", point.x);
    ring.setAttribute("cy", point.y);
    const text = element("p", point.text.trim() ? "text" : "empty", point.text.trim() ? point.text : "(empty)");
    text.dir = "auto";
    const about = point.label ? `${point.of} · ${point.label}` : point.of;
    readout.replaceChildren(element("p", "about", about), text);
  };
  const filter = () => {
    const off = (kind) => new Set(boxes.filter((box) => !box.checked && kind in box.dataset).map((box) => box.dataset[kind]));
    const tables = off("of");
    const labels = off("label");
    points.forEach((point) => point.dot.toggleAttribute("data-off", tables.has(point.of) || labels.has(point.label)));
    if (chosen && chosen.dot.hasAttribute("data-off")) choose(null);
  };
  const nearest = (x, y, within) => {
    let best = null;
    let least = within;
    for (const point of shown()) {
      const far = Math.hypot(point.x - x, point.y - y);
      if (far <= least) [best, least] = [point, far];
    }
    return best;
  };
  const towards = (dx, dy) => {
    let best = null;
    let least = Infinity;
    for (const point of shown()) {
      const along = (point.x - chosen.x) * dx + (point.y - chosen.y) * dy;
      const across = Math.abs((point.x - chosen.x) * dy - (point.y - chosen.y) * dx);
      if (point !== chosen && along > 0 && across <= along && along + across < least) {
        [best, least] = [point, along + across];
      }
    }
    return best;
  };
  const under = (event) => {
    const box = svg.getBoundingClientRect();
    const scale = view.width / box.width;
    return nearest((event.clientX - box.left) * scale, (event.clientY - box.top) * scale, 18);
  };
  const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

  boxes.forEach((box) => box.addEventListener("change", filter));
  map.addEventListener("pointermove", (event) => {
    const point = under(event);
    if (point && point !== chosen) choose(point);
  });
  map.addEventListener("click", (event) => choose(under(event)));
  map.addEventListener("keydown", (event) => {
    if (event.key === "Escape") choose(null);
    if (!(event.key in steps)) return;
    event.preventDefault();
    const point = chosen ? towards(...steps[event.key]) : nearest(view.width / 2, view.height / 2, Infinity);
    if (point) choose(point);
  });
  filter();
})();
