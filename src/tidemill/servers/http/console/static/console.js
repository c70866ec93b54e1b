// The behaviour of the console: forms that call the API, dialogs, live parts, keyboard, theme. Text from the server is
// put into the page as text only. Scripts of single pages use `tidemill.api("GET", "/api/v1/topics")` and the others
// that it returns.
"use strict";

window.tidemill = (() => {
  const TOAST_MS = 6000;
  const LIVE_S = 5;
  const CHORD_MS = 1200;
  const RETRY_MS = 2000;
  const MESSAGE = "message";

  /* The API. */

  /** An error of the API. `field` is the part of the document that it is about, where the API knows it. */
  class ApiError extends Error {
    constructor(message, field = "") {
      super(message);
      this.field = field;
    }
  }

  /** Send a request, with a body that becomes JSON. Returns the answer, or fails with the reason that it gives. */
  async function request(method, path, body, signal) {
    const headers = { accept: "application/json" };
    const token = document.querySelector('meta[name="form-token"]').content;
    if (token) headers["x-csrf-token"] = token;
    if (body !== undefined) headers["content-type"] = "application/json";
    let answer;
    try {
      answer = await fetch(path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new ApiError("The broker does not answer. Check that it is running, and try again.");
    }
    if (answer.status === 401) {
      location.assign("/login");
      throw new ApiError("The session has ended. Log in again.");
    }
    if (!answer.ok) throw await errorOf(answer);
    return answer;
  }

  /** Send a request to the API. Returns the document, or null for an answer without one. */
  async function api(method, path, body, signal) {
    const answer = await request(method, path, body, signal);
    const type = answer.headers.get("content-type") || "";
    return answer.status === 204 || !type.startsWith("application/json") ? null : answer.json();
  }

  async function errorOf(answer) {
    const text = await answer.text();
    try {
      const { error, field } = JSON.parse(text);
      return new ApiError(error || text, field || "");
    } catch {
      return new ApiError(text.trim() || `The broker answers with status ${answer.status}.`);
    }
  }

  /* Elements. */

  /** Make an element. Children are nodes or text. */
  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  /** Show one line at the edge of the page. Errors stay until they are closed. */
  function toast(text, tone = "ok") {
    const close = element("button", { type: "button", class: "plain", "aria-label": "Close" }, "×");
    const shown = element("div", { class: `toast ${tone}` }, element("p", {}, text), close);
    close.addEventListener("click", () => shown.remove());
    document.getElementById("toasts").append(shown);
    if (tone !== "bad") setTimeout(() => shown.remove(), TOAST_MS);
  }

  function problemOf(error) {
    return error instanceof ApiError ? error.message : String(error);
  }

  /** Show a problem in a form or dialog; an empty text hides it. */
  function showProblem(form, text) {
    const shown = form.querySelector(".form-problem");
    shown.textContent = text;
    shown.hidden = text === "";
  }

  /* Numbers and times as text. */

  const SIZE_UNITS = ["B", "KiB", "MiB", "GiB"];
  const NO_TIME_MS = -1;

  function sizeText(bytes) {
    let value = bytes;
    let unit = 0;
    for (; value >= 1024 && unit < SIZE_UNITS.length - 1; unit += 1) value /= 1024;
    return `${unit ? value.toFixed(1) : value} ${SIZE_UNITS[unit]}`;
  }

  /** The time of a record in UTC. Producers choose it, so it may be none, or no time at all. */
  function timeText(timeMs) {
    if (timeMs === NO_TIME_MS) return "none";
    const time = new Date(timeMs);
    return Number.isNaN(time.getTime()) ? `${timeMs} ms` : time.toISOString().replace("T", " ").slice(0, -1);
  }

  /* Forms that call the API. */

  function valueOf(field) {
    const kind = field.dataset.kind || (field.type === "number" ? "number" : field.type === "checkbox" ? "boolean" : "text");
    if (kind === "boolean") return field.checked;
    if (kind === "flag") return field.checked ? field.value : undefined;
    const text = field.value;
    if (text === "" && !("keepsEmpty" in field.dataset)) return undefined;
    if (kind === "number") return Number(text);
    if (kind === "list") return text.split(/[\n,]/).map((each) => each.trim()).filter((each) => each !== "");
    if (kind === "json") return JSON.parse(text);
    if (kind === "properties") return propertiesOf(text);
    return text;
  }

  /** Lines with `name=value` as a document. */
  function propertiesOf(text) {
    const lines = text.split("\n").map((each) => each.trim()).filter((each) => each !== "");
    return Object.fromEntries(lines.map((line) => {
      const [name, ...rest] = line.split("=");
      if (!rest.length) throw new SyntaxError(`write name=value, not ${line}`);
      return [name.trim(), rest.join("=").trim()];
    }));
  }

  /** The path of a field in the document. A dotted name makes a document inside; with data-into the name is one part. */
  function pathOf(field) {
    return "into" in field.dataset ? [field.dataset.into, field.name] : field.name.split(".");
  }

  /** The fields of a form as a document. Radio buttons that are off are left out. */
  function documentOf(form) {
    const made = {};
    for (const field of form.elements) {
      if (!field.name || field.disabled || (field.type === "radio" && !field.checked)) continue;
      const value = valueOf(field);
      if (value === undefined) continue;
      const names = pathOf(field);
      const last = names.pop();
      let inside = made;
      for (const name of names) inside = Object.hasOwn(inside, name) ? inside[name] : (inside[name] = {});
      const isAdded = field.dataset.kind === "properties" && Object.hasOwn(inside, last);
      inside[last] = isAdded ? { ...inside[last], ...value } : value;
    }
    return made;
  }

  /** Replace `{field}` in a template by the values of the document, which loses those fields. */
  function filled(template, values, taken) {
    return template.replace(/\{(\w+)\}/g, (_, name) => {
      taken.add(name);
      return encodeURIComponent(values[name] ?? "");
    });
  }

  async function send(form) {
    const [method, template] = form.dataset.api.split(" ", 2);
    let made;
    try {
      made = documentOf(form);
    } catch (error) {
      throw new ApiError(`A field is not valid: ${error.message}`);
    }
    const taken = new Set();
    const path = filled(template, made, taken);
    const then = filled(form.dataset.then || "", made, new Set());
    for (const name of taken) delete made[name];
    const hasBody = method !== "GET" && (method !== "DELETE" || Object.keys(made).length > 0 || "body" in form.dataset);
    const answer = await api(method, path, hasBody ? made : undefined);
    // A script of the page may use the answer, and keep the page as it is.
    const done = new CustomEvent("api-done", { detail: answer, bubbles: true, cancelable: true });
    if (!form.dispatchEvent(done)) return;
    finished(form.dataset.message || "Done.", then);
  }

  /** Load the page again, or another one, and show a message there. */
  function finished(message, then = "") {
    try {
      sessionStorage.setItem(MESSAGE, message);
    } catch {
      // Without storage there is no message.
    }
    if (then) location.assign(then);
    else location.reload();
  }

  async function submitted(event) {
    const form = event.target;
    if (!form.dataset.api) return;
    event.preventDefault();
    const shown = form.querySelector(".form-problem");
    const buttons = [...form.querySelectorAll("button:not([type=button])")];
    if (shown) shown.hidden = true;
    for (const each of form.querySelectorAll("[aria-invalid]")) each.removeAttribute("aria-invalid");
    for (const each of buttons) each.disabled = true;
    form.setAttribute("aria-busy", "true");
    try {
      await send(form);
    } catch (error) {
      if (shown) {
        shown.textContent = problemOf(error);
        shown.hidden = false;
        markField(form, error.field);
      } else {
        toast(problemOf(error), "bad");
      }
    }
    form.removeAttribute("aria-busy");
    for (const each of buttons) each.disabled = false;
    checkConfirmation(form);
  }

  /** Mark the field that an error is about, or the one that its part of the document comes from, and go there. */
  function markField(form, path) {
    if (!path) return;
    const named = [...form.elements].filter((each) => each.name && each.type !== "hidden");
    const field = named.find((each) => pathOf(each).join(".") === path)
      || named.find((each) => path.startsWith(`${pathOf(each).join(".")}.`));
    if (!field) return;
    field.closest("details")?.setAttribute("open", "");
    field.setAttribute("aria-invalid", "true");
    field.focus();
  }

  function checkConfirmation(form) {
    if (!form || !("confirmText" in form.dataset)) return;
    const typed = form.querySelector("[data-confirm]").value;
    const button = form.querySelector("button:not([type=button])");
    button.disabled = typed !== form.dataset.confirmText;
  }

  /* Dialogs. */

  function openDialog(id) {
    const dialog = document.getElementById(id);
    if (!dialog || dialog.open) return;
    for (const form of dialog.querySelectorAll("form")) checkConfirmation(form);
    dialog.showModal();
    const first = dialog.querySelector("[autofocus]") || dialog.querySelector("input:not([type=hidden]), select, textarea");
    if (first) first.focus();
  }

  /** A button may fill a field of the dialog that it opens, and show the value there. */
  function fillIn(button) {
    const dialog = document.getElementById(button.dataset.open);
    dialog.querySelector(`input[name="${button.dataset.fill}"]`).value = button.dataset.fillValue;
    for (const shown of dialog.querySelectorAll(`[data-filled="${button.dataset.fill}"]`)) {
      shown.textContent = button.dataset.fillValue;
    }
  }

  async function clicked(event) {
    const target = event.target.closest("[data-open], [data-close], [data-copy], [data-theme-toggle]");
    if (!target) return;
    if ("fill" in target.dataset) fillIn(target);
    if ("open" in target.dataset) openDialog(target.dataset.open);
    if ("close" in target.dataset) target.closest("dialog").close();
    if ("themeToggle" in target.dataset) switchTheme();
    if ("copy" in target.dataset) await copy(target.dataset.copy);
  }

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      toast("Copied.");
    } catch {
      toast("The browser does not allow copying here. Select the text, and copy it with the keyboard.", "bad");
    }
  }

  function switchTheme() {
    const root = document.documentElement;
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    try {
      localStorage.setItem("theme", root.dataset.theme);
    } catch {
      // The choice holds for this page.
    }
  }

  /* Live parts: the page is loaded again, and the parts with data-live are replaced by what it has now. */

  function isInUse(part) {
    if (part.querySelector("dialog[open]")) return true;
    const focused = document.activeElement;
    return focused !== null && focused !== document.body && part.contains(focused);
  }

  async function refresh(path, parts) {
    const answer = await fetch(path, { headers: { accept: "text/html" } });
    if (answer.redirected && new URL(answer.url).pathname === "/login") location.assign("/login");
    const loaded = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!answer.ok) throw new ApiError(loaded.querySelector("main .banner")?.textContent.trim() || `the broker answers with status ${answer.status}`);
    for (const part of parts) {
      const made = loaded.getElementById(part.id);
      if (made === null || isInUse(part)) continue;
      const opened = [...part.querySelectorAll("details[open][id]")].map((each) => each.id);
      const scrolled = [...part.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
      part.replaceChildren(...document.importNode(made, true).childNodes);
      for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
      part.querySelectorAll(".scroll").forEach((each, number) => { each.scrollLeft = scrolled[number] || 0; });
    }
    showTimes();
  }

  const failing = new Map();

  /** Say that the values of the page are old, while one of its live parts cannot be loaded. */
  function showStale() {
    const [reason] = failing.values();
    const shown = document.getElementById("stale");
    if (reason === undefined) shown?.remove();
    else if (shown) shown.firstChild.textContent = reason;
    else document.getElementById("toasts").append(element("div", { id: "stale", class: "toast bad" }, element("p", {}, reason)));
  }

  function startLive() {
    const groups = new Map();
    for (const part of document.querySelectorAll("[data-live]")) {
      const path = part.dataset.live || location.pathname + location.search;
      const seconds = Number(part.dataset.liveS) || LIVE_S;
      const key = `${seconds} ${path}`;
      if (!groups.has(key)) groups.set(key, { path, seconds, parts: [] });
      groups.get(key).parts.push(part);
    }
    for (const [key, { path, seconds, parts }] of groups) {
      const again = async () => {
        try {
          if (!document.hidden) await refresh(path, parts);
          failing.delete(key);
        } catch (error) {
          const reason = error instanceof ApiError ? error.message : "the broker does not answer";
          failing.set(key, `This page shows old values: ${reason}`);
        }
        showStale();
        setTimeout(again, seconds * 1000);
      };
      setTimeout(again, seconds * 1000);
    }
  }

  /** Server-sent events as documents. The browser connects again by itself when a stream ends; with a function as path,
   *  this does it, so that the next stream can have another path. A page that is not visible has no stream, because a
   *  browser opens few connections to one server. Returns a function that ends it. */
  function events(path, onDocument, onState = () => {}) {
    let source = null;
    let again = 0;
    const open = () => {
      source = new EventSource(typeof path === "function" ? path() : path);
      source.addEventListener("message", (event) => onDocument(JSON.parse(event.data)));
      source.addEventListener("open", () => onState("open"));
      source.addEventListener("error", () => {
        const isOver = source?.readyState === EventSource.CLOSED;
        onState(isOver ? "closed" : "connecting");
        if (isOver || typeof path !== "function") return;
        shut();
        again = setTimeout(changed, RETRY_MS);
      });
      source.addEventListener("problem", (event) => {
        stop();
        toast(JSON.parse(event.data).error, "bad");
        onState("closed");
      });
    };
    const shut = () => {
      clearTimeout(again);
      source?.close();
      source = null;
    };
    const changed = () => {
      if (document.hidden) shut();
      else if (source === null) open();
    };
    const stop = () => {
      document.removeEventListener("visibilitychange", changed);
      shut();
    };
    document.addEventListener("visibilitychange", changed);
    changed();
    return stop;
  }

  /* Charts: the row of the table under the pointer. */

  function pointed(event) {
    const chart = event.target.closest?.(".plot .chart[role=img]");
    const shown = document.querySelector(".readout");
    const figure = chart?.closest("figure");
    if (!figure || shown?.parentElement !== figure) {
      shown?.remove();
      document.querySelector(".chart .cursor")?.remove();
    }
    if (!figure) return;
    const rows = figure.querySelectorAll("tbody tr");
    const box = chart.getBoundingClientRect();
    const share = (event.clientX - box.left) / box.width;
    const places = chart.dataset.places?.split(" ").map(Number) || [...rows].map((_, number) => number / Math.max(1, rows.length - 1));
    const at = places.reduce((best, each, number) => (Math.abs(each - share) < Math.abs(places[best] - share) ? number : best), 0);
    const row = rows[at];
    if (!row) return;
    const names = [...figure.querySelectorAll("thead th")].slice(1).map((each) => each.textContent);
    const [time, ...values] = [...row.cells].map((each) => each.textContent);
    const text = `${time}  ${values.map((value, number) => `${names[number]} ${value}`).join(", ")}`;
    const readout = figure.querySelector(".readout") || figure.appendChild(element("output", { class: "readout", "aria-hidden": "true" }));
    readout.textContent = text;
    let cursor = chart.querySelector(".cursor");
    if (!cursor) {
      cursor = document.createElementNS("http://www.w3.org/2000/svg", "line");
      cursor.setAttribute("class", "cursor");
      cursor.setAttribute("y1", "18");
      cursor.setAttribute("y2", "146");
      chart.append(cursor);
    }
    const place = `${100 * places[at]}%`;
    cursor.setAttribute("x1", place);
    cursor.setAttribute("x2", place);
  }

  /* Times. */

  const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

  function relativeTime(timeMs, nowMs = Date.now()) {
    const seconds = (timeMs - nowMs) / 1000;
    const [unit, size] = UNITS.find(([, each]) => Math.abs(seconds) >= each) || UNITS.at(-1);
    return relative.format(Math.trunc(seconds / size), unit);
  }

  function showTimes() {
    for (const each of document.querySelectorAll("time[data-time-ms]")) {
      each.textContent = relativeTime(Number(each.dataset.timeMs));
    }
  }

  /* The keyboard. */

  let chordUntil = 0;

  function pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select, dialog, [contenteditable]")) return;
    if (Date.now() < chordUntil) {
      chordUntil = 0;
      const link = document.querySelector(`.pages a[data-key="${CSS.escape(event.key)}"]`);
      if (link) {
        event.preventDefault();
        link.click();
      }
      return;
    }
    if (event.key === "g") chordUntil = Date.now() + CHORD_MS;
    if (event.key === "?") openDialog("shortcuts");
    const search = document.querySelector("[data-search]");
    if (event.key === "/" && search) {
      event.preventDefault();
      search.focus();
      search.select();
    }
  }

  function showMessage() {
    try {
      const message = sessionStorage.getItem(MESSAGE);
      sessionStorage.removeItem(MESSAGE);
      if (message) toast(message);
    } catch {
      // Storage is off in this browser.
    }
  }

  function start() {
    document.addEventListener("submit", submitted);
    document.addEventListener("click", clicked);
    document.addEventListener("keydown", pressed);
    document.addEventListener("pointermove", pointed, { passive: true });
    document.addEventListener("input", (event) => checkConfirmation(event.target.closest("form[data-confirm-text]")));
    // A select or a checkbox with this attribute sends its form at once.
    document.addEventListener("change", (event) => {
      if ("autoSubmit" in event.target.dataset) event.target.form.requestSubmit();
    });
    document.querySelector('.pages a[aria-current="page"]')?.scrollIntoView({ block: "nearest", inline: "nearest" });
    showMessage();
    showTimes();
    startLive();
    setInterval(showTimes, 15_000);
  }

  start();
  return { api, request, element, toast, copy, problemOf, events, documentOf, finished, openDialog, relativeTime, showTimes, showProblem, sizeText, timeText };
})();

