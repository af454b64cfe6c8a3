"use strict";

// Everything works without this file; with it, pages fill themselves in.

const AGAIN_MS = 700;
const TYPING_MS = 350;
const status = document.getElementById("status");

// Say something to a screen reader, once.
const tell = (words, seen = false) => {
  if (words && status.textContent !== words) status.textContent = words;
  status.classList.toggle("hidden", !seen);
  status.classList.toggle("notice", seen);
};

const reveal = (root) => {
  root.querySelectorAll("[data-copy], #theme").forEach((each) => { each.hidden = false; });
};

// Put new content in, keeping what is open, what is checked, what is scrolled and where the focus is.
const put = (target, html) => {
  const active = document.activeElement;
  const focus = target.contains(active) ? active.id || active.dataset.copy : "";
  const open = new Map([...target.querySelectorAll("details[id]")].map((each) => [each.id, each.open]));
  const checked = new Set([...target.querySelectorAll("input:checked")].map((each) => each.id));
  const scrolled = [...target.querySelectorAll(".scroll, .log")].map((each) => [each.scrollLeft, each.scrollTop]);
  target.innerHTML = html;
  target.querySelectorAll("details[id]").forEach((each) => { if (open.has(each.id)) each.open = open.get(each.id); });
  target.querySelectorAll("input[id]").forEach((each) => { each.checked = checked.has(each.id); });
  target.querySelectorAll(".scroll, .log").forEach((each, place) => {
    if (scrolled[place]) [each.scrollLeft, each.scrollTop] = scrolled[place];
  });
  reveal(target);
  if (focus) (document.getElementById(focus) || target.querySelector(`[data-copy="${CSS.escape(focus)}"]`))?.focus();
};

// Fetch a part of the page, and again while it says that there is more to come, or may be.
const follow = (target, address) => {
  let timer = 0;
  let more = false;
  let current = 0;
  const again = () => {
    clearTimeout(timer);
    const said = target.querySelector("[data-status]");
    if (said) tell(said.dataset.status);
    const next = target.querySelector("[data-again]");
    if (next) timer = setTimeout(load, Number(next.dataset.again) || AGAIN_MS);
    else if (more && target.dataset.then === "reload") location.reload();
    more = Boolean(next);
  };
  const load = async () => {
    clearTimeout(timer);
    const mine = ++current;
    try {
      const answer = await fetch(address());
      const html = await answer.text();
      if (mine !== current) return;
      if (!answer.ok) throw new Error(answer.statusText);
      put(target, html);
      again();
    } catch {
      if (mine === current) tell("The studio does not answer. Has it been stopped?", true);
    }
  };
  again();
  return load;
};

document.querySelectorAll("[data-poll]").forEach((target) => follow(target, () => target.dataset.poll));

document.querySelectorAll("form[data-live]").forEach((form) => {
  const query = () => new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== "")).toString();
  const target = document.getElementById(form.dataset.into);
  const load = follow(target, () => `${form.dataset.live}?${query() || location.search.slice(1)}`);
  let timer = 0;
  const changed = (wait) => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      history.replaceState(null, "", `${form.getAttribute("action")}?${query()}`);
      load();
    }, wait);
  };
  form.addEventListener("input", () => changed(TYPING_MS));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    changed(0);
  });
});

document.querySelectorAll(".filter select").forEach((each) => each.addEventListener("change", () => each.form.submit()));

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = "Copied";
    tell("Copied");
  } catch {
    getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
    tell("Selected: copy it with the keyboard");
  }
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
});

const root = document.documentElement;
const theme = document.getElementById("theme");
const system = matchMedia("(prefers-color-scheme: dark)");
const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
const show = () => theme.setAttribute("aria-pressed", String(dark()));
if (sessionStorage.theme) root.dataset.theme = sessionStorage.theme;
theme.addEventListener("click", () => {
  sessionStorage.theme = root.dataset.theme = dark() ? "light" : "dark";
  show();
});
system.addEventListener("change", show);
show();
reveal(document);
