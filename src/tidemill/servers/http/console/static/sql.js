// The page SQL: runs the query of the editor, and shows its result as a table, as a chart or as a download. Names and
// values of a result are put into the page as text only.
"use strict";

(() => {
  const { api, request, element, toast, copy, problemOf, openDialog, sizeText } = window.tidemill;
  const CELL_CHARS = 60;
  const VALUE_CHARS = 200_000;
  const ROWS_AT_ONCE = 500;
  const CHART_ROWS = 1000;
  const LABEL_CHARS = 200;
  const HISTORY = "sql-history";
  const DRAFT = "sql-draft";
  const HISTORY_MAX = 50;
  const HISTORY_CHARS = 4000;
  const NUMBER = /^(Nullable\(|LowCardinality\()*(U?Int|Float|Decimal|BFloat|Bool)/;
  const TIME = /^(Nullable\(|LowCardinality\()*Date/;
  const numbers = new Intl.NumberFormat("en");

  const byId = (id) => document.getElementById(id);
  const text = byId("sql-text");
  const card = byId("sql-result");
  let running = null;
  let result = null;
  let ran = "";

  /* Text that the browser keeps. */

  function kept(storage, key, otherwise) {
    try {
      return JSON.parse(storage.getItem(key)) ?? otherwise;
    } catch {
      return otherwise;
    }
  }

  function keep(storage, key, value) {
    try {
      storage.setItem(key, JSON.stringify(value));
    } catch {
      // Storage is off or full in this browser.
    }
  }

  function pastQueries() {
    const found = kept(localStorage, HISTORY, []);
    return Array.isArray(found) ? found.filter((each) => typeof each === "string") : [];
  }

  function remember(query) {
    if (query.length > HISTORY_CHARS) return;
    const others = pastQueries().filter((each) => each !== query);
    keep(localStorage, HISTORY, [query, ...others].slice(0, HISTORY_MAX));
  }

  function setQuery(query) {
    text.value = query;
    keep(sessionStorage, DRAFT, query);
    text.focus();
  }

  function insert(name) {
    text.focus();
    text.setRangeText(name, text.selectionStart, text.selectionEnd, "end");
    keep(sessionStorage, DRAFT, text.value);
  }

  function showHistory() {
    const past = pastQueries();
    const list = byId("sql-history");
    list.replaceChildren(...past.map((query) => {
      const button = element("button", { type: "button" }, query);
      button.addEventListener("click", () => {
        byId("history").close();
        setQuery(query);
      });
      return button;
    }));
    if (!past.length) list.append(element("p", { class: "note" }, "Queries that you run are listed here, and kept in this browser only."));
    byId("sql-forget").disabled = !past.length;
  }

  /* Run. */

  function setRunning(controller) {
    running = controller;
    byId("sql-run").disabled = controller !== null;
    byId("sql-cancel").hidden = controller === null;
    card.toggleAttribute("aria-busy", controller !== null);
  }

  async function run() {
    const query = text.value;
    if (running !== null || query.trim() === "") return;
    const controller = new AbortController();
    setRunning(controller);
    card.hidden = false;
    showProblem("");
    byId("sql-status").textContent = "Running…";
    remember(query);
    try {
      result = await api("POST", "/api/v1/sql", { query, limit: Number(byId("sql-limit").value), exact_integers: true }, controller.signal);
      ran = query;
      show();
    } catch (error) {
      clear();
      if (controller.signal.aborted) byId("sql-status").textContent = "Cancelled.";
      else showFailure(query, problemOf(error));
    }
    setRunning(null);
  }

  function clear() {
    result = null;
    byId("sql-status").textContent = "";
    byId("sql-views").hidden = true;
    byId("sql-table").replaceChildren();
    byId("sql-chart").hidden = true;
  }

  function showProblem(reason) {
    byId("sql-problem").textContent = reason;
    byId("sql-problem").hidden = reason === "";
  }

  /** Show why a query failed, and put the cursor where the engine says that the error is. */
  function showFailure(query, reason) {
    showProblem(reason);
    const place = /\(line (\d+), col (\d+)\)/.exec(reason);
    if (place === null) return;
    const lines = query.split("\n");
    const before = lines.slice(0, Number(place[1]) - 1).reduce((sum, line) => sum + line.length + 1, 0);
    const start = Math.min(before + Number(place[2]) - 1, query.length);
    text.focus();
    text.setSelectionRange(start, start + (/^\w+/.exec(query.slice(start))?.[0].length ?? 1));
  }

  function show() {
    const count = (rows) => `${numbers.format(rows)} ${rows === 1 ? "row" : "rows"}`;
    const read = `${count(result.rows_read)} (${sizeText(result.bytes_read)}) read`;
    const rows = `${result.truncated ? "the first " : ""}${count(result.row_count)}`;
    byId("sql-status").textContent = `${rows} in ${result.elapsed_s.toFixed(2)} s, ${read}`;
    byId("sql-views").hidden = false;
    showTable();
    fillAxes();
    showView("table");
  }

  /* The table. */

  function textOf(value) {
    return typeof value === "object" ? JSON.stringify(value) : String(value);
  }

  function cell(value, column) {
    const made = element("td", NUMBER.test(column.type) ? { class: "n" } : {});
    if (value === null) {
      made.append(element("span", { class: "sql-null" }, "NULL"));
      return made;
    }
    const shown = textOf(value);
    const line = shown.slice(0, CELL_CHARS).replace(/\r?\n/g, "⏎");
    made.append(line);
    if (shown.length <= CELL_CHARS) return made;
    const more = element("button", { type: "button", class: "plain", "aria-label": `Show all of ${column.name}` }, `… ${numbers.format(shown.length)} characters`);
    more.addEventListener("click", () => showCell(column.name, shown));
    made.append(more);
    return made;
  }

  function showCell(name, value) {
    byId("cell-title").textContent = name;
    byId("cell-text").textContent = value.length > VALUE_CHARS ? `${value.slice(0, VALUE_CHARS)}…` : value;
    byId("cell-copy").onclick = () => copy(value);
    openDialog("cell");
  }

  function showTable() {
    const { columns, rows } = result;
    const head = element("tr", {}, ...columns.map((each) => element("th", { scope: "col", ...(NUMBER.test(each.type) ? { class: "n" } : {}) }, each.name, element("span", { title: each.type }, each.type))));
    const body = element("tbody");
    const table = element("table", {}, element("thead", {}, head), body);
    const scroll = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Rows of the result" }, table);
    const foot = element("div", { class: "more-rows" });
    let shown = 0;
    const more = () => {
      for (const row of rows.slice(shown, shown + ROWS_AT_ONCE)) {
        body.append(element("tr", {}, ...row.map((value, number) => cell(value, columns[number]))));
      }
      shown = Math.min(shown + ROWS_AT_ONCE, rows.length);
      foot.replaceChildren();
      if (shown < rows.length) {
        const button = element("button", { type: "button", class: "small" }, `Show ${numbers.format(Math.min(ROWS_AT_ONCE, rows.length - shown))} more`);
        button.addEventListener("click", more);
        foot.append(`${numbers.format(shown)} of ${numbers.format(rows.length)} rows`, button);
      } else if (result.truncated) {
        foot.append(`The query has more than ${numbers.format(rows.length)} rows. Raise the number of rows, or download all of them.`);
      } else if (!rows.length) {
        foot.append("The query has no rows.");
      }
      foot.hidden = !foot.childNodes.length;
    };
    more();
    byId("sql-table").replaceChildren(scroll, foot);
  }

  /* The chart. */

  function fillAxes() {
    const { x, y } = byId("sql-axes").elements;
    const columns = result.columns.map((each, number) => ({ ...each, number }));
    const drawable = columns.filter((each) => NUMBER.test(each.type));
    const option = (each) => element("option", { value: String(each.number) }, each.name);
    x.replaceChildren(...columns.map(option));
    y.replaceChildren(...drawable.map(option));
    const across = columns.find((each) => TIME.test(each.type)) || columns.find((each) => !NUMBER.test(each.type)) || columns[0];
    const up = drawable.find((each) => each !== across) || drawable[0];
    if (across) x.value = String(across.number);
    if (up) y.value = String(up.number);
    byId("sql-axes").elements.kind.value = across && !TIME.test(across.type) && !NUMBER.test(across.type) ? "bar" : "line";
  }

  function noteChart(note) {
    byId("sql-chart-note").textContent = note;
    byId("sql-chart-note").hidden = note === "";
  }

  async function draw() {
    const { x, y, kind } = byId("sql-axes").elements;
    const drawing = byId("sql-drawing");
    drawing.replaceChildren();
    if (!result.rows.length || y.value === "") {
      noteChart(result.rows.length ? "The result has no column of numbers, so there is nothing to draw." : "The query has no rows.");
      return;
    }
    const rows = result.rows.slice(0, CHART_ROWS);
    noteChart(rows.length < result.rows.length ? `The chart shows the first ${numbers.format(CHART_ROWS)} rows.` : "");
    const [across, up] = [Number(x.value), Number(y.value)];
    const asked = {
      kind: kind.value,
      label_name: result.columns[across].name.slice(0, LABEL_CHARS),
      labels: rows.map((row) => (row[across] === null ? "NULL" : textOf(row[across]).slice(0, LABEL_CHARS))),
      value_name: result.columns[up].name.slice(0, LABEL_CHARS),
      values: rows.map((row) => (row[up] === null ? null : Number(row[up]))),
    };
    try {
      const answer = await request("POST", "/sql/chart", asked);
      const loaded = new DOMParser().parseFromString(await answer.text(), "text/html");
      drawing.replaceChildren(...document.importNode(loaded.body, true).childNodes);
    } catch (error) {
      noteChart(problemOf(error));
    }
  }

  function showView(view) {
    for (const each of document.querySelectorAll("[data-view]")) {
      each.setAttribute("aria-pressed", String(each.dataset.view === view));
    }
    byId("sql-table").hidden = view !== "table";
    byId("sql-chart").hidden = view !== "chart";
    if (view === "chart") draw();
  }

  /* Downloads: the query runs again, without a limit of rows but those of the broker. */

  async function download(button) {
    button.disabled = true;
    const format = button.dataset.download;
    try {
      const answer = await request("POST", "/api/v1/sql", { query: ran, format, guard_formulas: format === "csv" });
      const link = element("a", { href: URL.createObjectURL(await answer.blob()), download: `result.${format}` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    } catch (error) {
      toast(problemOf(error), "bad");
    }
    button.disabled = false;
  }

  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-insert], [data-example], [data-view], [data-download], [data-open=history]");
    if (!target) return;
    if ("insert" in target.dataset) insert(target.dataset.insert);
    else if ("example" in target.dataset) setQuery(target.dataset.example);
    else if ("view" in target.dataset) showView(target.dataset.view);
    else if ("download" in target.dataset) download(target);
    else showHistory();
  });
  byId("sql-editor").addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  byId("sql-editor").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      run();
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && running !== null && !document.querySelector("dialog[open]")) running.abort();
  });
  byId("sql-cancel").addEventListener("click", () => running?.abort());
  byId("sql-axes").addEventListener("change", draw);
  byId("sql-link").addEventListener("click", () => copy(`${location.origin}/sql?query=${encodeURIComponent(text.value)}`));
  byId("sql-forget").addEventListener("click", () => {
    keep(localStorage, HISTORY, []);
    showHistory();
  });
  text.addEventListener("input", () => keep(sessionStorage, DRAFT, text.value));

  // A query of the URL is only shown: another page may have made the link.
  if (text.dataset.linked === "no") text.value = kept(sessionStorage, DRAFT, "") || text.value;
})();
