// Records of a topic: the start of a list, rows that open in place, the live view, and the dialogs that write records.
// Keys, values and headers are put into the page as text only.
"use strict";

(() => {
  const { api, element, events, finished, toast, openDialog, showTimes, showProblem, sizeText, timeText } = window.tidemill;
  const ROWS_MAX = 200;
  const RATE_MS = 5000;
  /** The broker adds it when a scheduled record is due. A copy of the record is another record. */
  const MESSAGE_HEADER = "tidemill-message";
  const DUE_HEADER = "tidemill-deliver-at";

  /* Text: characters that are not seen have their names, as on the pages that the server makes. */

  const UNSEEN = /[\p{C}\p{Z}]/gu;

  function visible(text) {
    const parts = document.createDocumentFragment();
    let start = 0;
    for (const { 0: char, index } of text.matchAll(UNSEEN)) {
      if (char === " " || char === "\n" || char === "\t") continue;
      const name = `U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
      parts.append(text.slice(start, index), element("b", { class: "hidden-char" }, name));
      start = index + char.length;
    }
    parts.append(text.slice(start));
    return parts;
  }

  /* The fields of the list: one start at a time, and no empty fields in the URL. */

  const startChoice = document.getElementById("record-start");

  function showStart() {
    for (const field of document.querySelectorAll(".record-search [data-start]")) {
      const isUsed = field.dataset.start === startChoice.value;
      field.hidden = !isUsed;
      field.querySelector("input").disabled = !isUsed;
    }
  }

  if (startChoice) {
    startChoice.addEventListener("change", showStart);
    showStart();
  }

  const DEFAULTS = { match: "substring", order: "newest", key_format: "auto", value_format: "auto", rows: "50" };

  document.addEventListener("submit", (event) => {
    event.target.closest("#download")?.close();
    if (!event.target.matches(".record-search")) return;
    const isDefault = (field) => field.value === "" || field.value === DEFAULTS[field.name];
    const left = [...event.target.elements].filter((each) => each.name && !each.disabled && isDefault(each));
    for (const each of left) each.disabled = true;
    // The browser has taken the fields then. The page may be shown again from its history.
    setTimeout(() => { for (const each of left) each.disabled = false; });
  });

  document.addEventListener("click", (event) => {
    const example = event.target.closest("[data-example]");
    if (!example) return;
    example.closest("dialog").close();
    const field = document.querySelector(`.record-search [name="${example.dataset.example}"]`);
    field.value = example.dataset.exampleText;
    field.focus();
  });

  /* Rows that open in place. The server makes the part of the page that is put there. */

  async function recordPart(path) {
    const answer = await fetch(path, { headers: { accept: "text/html" } });
    if (answer.redirected && new URL(answer.url).pathname === "/login") location.assign("/login");
    const loaded = new DOMParser().parseFromString(await answer.text(), "text/html");
    const found = loaded.getElementById("record");
    if (found === null) throw new Error(loaded.querySelector("main .banner, main .empty")?.textContent.trim() || "The record cannot be shown.");
    found.removeAttribute("id");
    return document.importNode(found, true);
  }

  async function toggleRow(link) {
    const row = link.closest("tr");
    if (link.getAttribute("aria-expanded") === "true") {
      row.nextElementSibling.remove();
      link.setAttribute("aria-expanded", "false");
      return;
    }
    link.setAttribute("aria-expanded", "true");
    const cell = element("td", { colspan: "6" }, element("p", { class: "note" }, "Loading…"));
    row.after(element("tr", { class: "opened-record" }, cell));
    try {
      cell.replaceChildren(await recordPart(link.href));
      showTimes();
    } catch (error) {
      cell.replaceChildren(element("p", { class: "bad-text" }, error.message));
    }
  }

  async function showFormat(link) {
    const shown = link.closest(".record");
    const place = new URL(link.href);
    try {
      const made = await recordPart(place.pathname + place.search);
      shown.replaceWith(made);
      showTimes();
      made.querySelector(`[data-format="${link.dataset.format}"][aria-current]`)?.focus();
    } catch (error) {
      toast(error.message, "bad");
    }
  }

  function opensElsewhere(event) {
    return event.ctrlKey || event.metaKey || event.shiftKey || event.altKey || event.button !== 0;
  }

  document.addEventListener("click", (event) => {
    if (opensElsewhere(event)) return;
    const link = event.target.closest("a[data-record], .opened-record a[data-format]");
    if (link) {
      event.preventDefault();
      if ("record" in link.dataset) toggleRow(link);
      else showFormat(link);
      return;
    }
    const row = event.target.closest(".record-row");
    if (row && !event.target.closest("a, button") && getSelection().isCollapsed) toggleRow(row.querySelector("a[data-record]"));
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy-link]");
    if (!button) return;
    const link = new URL(button.dataset.copyLink, location.href).href;
    navigator.clipboard?.writeText(link).then(
      () => toast("Copied."),
      () => toast(`The browser does not allow copying here. The link is ${link}`, "bad"),
    );
  });

  /* The live view. */

  const live = document.getElementById("live");

  function badge(text, tone = "quiet") {
    return element("span", { class: `badge ${tone}` }, text);
  }

  function preview(view, chars) {
    if (view.format === "null") return [badge("null")];
    if (view.bytes === 0) return [badge("empty")];
    const parts = view.format === "json" || view.format === "text" ? [] : [badge(view.format, "info"), " "];
    parts.push(element("bdi", { class: "code" }, visible(view.text.slice(0, chars))));
    if (view.cut || view.text.length > chars) parts.push(element("span", { class: "soft" }, "…"));
    return parts;
  }

  const TRANSACTION_TONES = { committed: "quiet", aborted: "bad", open: "warn" };

  function rowOf(record) {
    const chars = Number(live.dataset.chars);
    const place = `${record.partition}/${record.offset}`;
    const transaction = record.transaction === "none" ? [] : [badge(record.transaction, TRANSACTION_TONES[record.transaction]), " "];
    const row = element(
      "tr", { class: "record-row new-record", "data-place": place },
      element("td", { class: "n" }, String(record.partition)),
      element("td", { class: "n" }, element("a", { href: `${live.dataset.base}/${place}`, "data-record": "" }, String(record.offset))),
      element("td", { class: "wide-only" }, timeText(record.timestamp)),
      element("td", { class: "key" }, ...preview(record.key_view, chars)),
      element("td", { class: "value" }, element("div", {}, ...transaction, ...preview(record.value_view, chars))),
      element("td", { class: "n wide-only" }, sizeText(record.bytes)),
    );
    return row;
  }

  /** Put new records above the others. A row that is open goes with the part that it has opened. */
  function showNew(records) {
    if (records.length === 0) return;
    const body = document.querySelector("#records tbody");
    document.getElementById("no-records")?.remove();
    document.getElementById("records").hidden = false;
    body.prepend(...records.slice(-ROWS_MAX).reverse().map(rowOf));
    while (body.querySelectorAll(".record-row").length > ROWS_MAX) body.lastElementChild.remove();
  }

  /** Counts what has come, and shows it with its rate. */
  function liveCounts(shown) {
    const numbers = new Intl.NumberFormat("en");
    let count = 0;
    let skipped = 0;
    let recent = [];

    function show() {
      recent = recent.filter(([time]) => time > Date.now() - RATE_MS);
      const rate = recent.reduce((sum, [, records]) => sum + records, 0) / (RATE_MS / 1000);
      const parts = [`${numbers.format(count)} new`, `${rate.toFixed(1)} per second`];
      if (skipped) parts.push(`${numbers.format(skipped)} left out, because they come faster than they are shown`);
      shown.textContent = parts.join(", ");
    }

    function add(found) {
      count += found.records.length;
      skipped += found.skipped;
      recent.push([Date.now(), found.records.length]);
      show();
    }

    return { add, show };
  }

  function startLive() {
    const state = live.querySelector("[data-live-state]");
    const pause = live.querySelector("[data-live-pause]");
    const counts = liveCounts(live.querySelector("[data-live-count]"));
    let position = live.dataset.position;
    let stop = null;

    function show(text, tone) {
      if (state.textContent === text) return;
      state.textContent = text;
      state.className = `badge ${tone}`;
    }

    function take(found) {
      show("Following", "ok");
      position = found.position;
      for (const each of found.unreadable) toast(`Partition ${each.partition}, offset ${each.offset} cannot be read: ${each.error}`, "bad");
      showNew(found.records);
      counts.add(found);
    }

    function path() {
      const separator = live.dataset.path.endsWith("?") ? "" : "&";
      return position ? `${live.dataset.path}${separator}position=${encodeURIComponent(position)}` : live.dataset.path;
    }

    function changed(now) {
      if (now === "connecting") show("Connecting again", "warn");
      if (now !== "closed") return;
      show("Ended", "bad");
      stop = null;
      pause.textContent = "Start again";
    }

    function follow() {
      show("Connecting", "quiet");
      pause.textContent = "Pause";
      stop = events(path, take, changed);
    }

    pause.addEventListener("click", () => {
      if (stop === null) {
        follow();
        return;
      }
      stop();
      stop = null;
      show("Paused", "warn");
      pause.textContent = "Resume";
    });
    follow();
    setInterval(() => { if (stop !== null) counts.show(); }, 1000);
  }

  if (live) startLive();

  /* Writing. */

  const produce = document.getElementById("produce");
  if (!produce) return;
  const form = produce.querySelector("form");
  const fields = form.elements;
  const headers = document.getElementById("produce-headers");
  const origin = document.getElementById("produce-origin");

  function addHeader(name = "", value = "", format = "text") {
    const made = document.getElementById("produce-header").content.cloneNode(true);
    made.querySelector('[name="header_name"]').value = name;
    made.querySelector('[name="header_value"]').value = value;
    made.querySelector('[name="header_format"]').value = format;
    headers.append(made);
    return headers.lastElementChild;
  }

  function showNulls() {
    for (const name of ["key", "value"]) fields[name].classList.toggle("is-null", fields[`${name}_format`].value === "null");
  }

  produce.addEventListener("click", (event) => {
    if (event.target.closest("[data-add-header]")) addHeader().querySelector("input").focus();
    event.target.closest("[data-remove-header]")?.closest(".header-field").remove();
  });
  produce.addEventListener("input", (event) => {
    const format = fields[`${event.target.name}_format`];
    if (event.target.matches("textarea") && format?.value === "null" && event.target.value !== "") format.value = "text";
    showNulls();
  });

  function payload(format, data) {
    return format === "null" ? null : { format, data };
  }

  function headersOf() {
    const made = [...headers.querySelectorAll(".header-field")].map((each) => {
      const [name, value, format] = ["name", "value", "format"].map((field) => each.querySelector(`[name="header_${field}"]`).value);
      return { name, value: payload(format, value) };
    });
    const due = fields.due?.value;
    if (!due) return made;
    const dueMs = Date.parse(`${due}Z`);
    if (Number.isNaN(dueMs)) throw new Error("Give a time, for example 2030-01-31 12:00:00.");
    return [...made.filter((each) => each.name !== DUE_HEADER), { name: DUE_HEADER, value: payload("text", String(dueMs)) }];
  }

  function recordOf() {
    const made = {
      key: payload(fields.key_format.value, fields.key.value),
      value: payload(fields.value_format.value, fields.value.value),
      headers: headersOf(),
    };
    if (fields.partition.value !== "") made.partition = Number(fields.partition.value);
    return made;
  }

  /** Send a record, and show it: in the live view it comes by itself. */
  async function write(dialog, made, message) {
    const place = await api("POST", dialog.dataset.path, made);
    const text = message(place);
    if (!live) {
      finished(text);
      return;
    }
    dialog.close();
    toast(text);
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = form.querySelector("button.primary");
    showProblem(produce, "");
    button.disabled = true;
    try {
      const isLater = Boolean(fields.due?.value) && Date.parse(`${fields.due.value}Z`) > Date.now();
      await write(produce, recordOf(), ({ partition, offset }) =>
        isLater ? `The record is scheduled. It appears at ${fields.due.value.replace("T", " ")} UTC.` : `The record was written to partition ${partition} at offset ${offset}.`);
    } catch (error) {
      showProblem(produce, error.message);
    }
    button.disabled = false;
  });

  /* An existing record as the first contents of the dialog, or as the key of a tombstone. */

  // A text field changes other line breaks, and others could not be seen in it.
  const CHANGED_BY_FIELDS = /[^\P{C}\n\t]/u;

  function editable(text, base64) {
    if (text === null) return { format: "null", data: "" };
    if (base64 === undefined && !CHANGED_BY_FIELDS.test(text)) return { format: "text", data: text };
    if (base64 !== undefined) return { format: "base64", data: base64 };
    return { format: "base64", data: base64Of(text) };
  }

  function base64Of(text) {
    return btoa(Array.from(new TextEncoder().encode(text), (each) => String.fromCharCode(each)).join(""));
  }

  function empty() {
    form.reset();
    headers.replaceChildren();
    origin.hidden = true;
    showProblem(produce, "");
    showNulls();
  }

  function fill(record) {
    const kept = (record.headers || []).filter((each) => each.name !== MESSAGE_HEADER);
    const parts = [editable(record.key, record.key_base64), editable(record.value, record.value_base64)];
    const most = Number(produce.dataset.charsMax);
    if (parts.some((each) => each.data.length > most)) throw new Error(`The record is too large to edit here: up to ${most} characters are accepted. Download it, and use tidemill produce.`);
    if (kept.length > Number(produce.dataset.headersMax)) throw new Error(`The record has ${kept.length} headers, and ${produce.dataset.headersMax} are accepted here.`);
    empty();
    ["key", "value"].forEach((name, number) => {
      fields[name].value = parts[number].data;
      fields[`${name}_format`].value = parts[number].format;
    });
    fields.partition.value = String(record.partition);
    for (const each of kept) {
      const { format, data } = editable(each.value, each.value_base64);
      // A line break does not fit into a field of one line.
      if (data.includes("\n")) addHeader(each.name, base64Of(data), "base64");
      else addHeader(each.name, data, format);
    }
    origin.textContent = `A copy of the record in partition ${record.partition} at offset ${record.offset}.`;
    origin.hidden = false;
    showNulls();
  }

  function placeOf(target) {
    return target.closest(".record").dataset.place;
  }

  const tombstone = document.getElementById("tombstone");
  const writeButton = tombstone.querySelector("button.danger");
  let removed = null;
  let asking = "";

  async function askTombstone(place) {
    asking = place;
    const facts = document.getElementById("tombstone-record");
    facts.replaceChildren();
    writeButton.disabled = true;
    showProblem(tombstone, "");
    openDialog("tombstone");
    try {
      const record = await api("GET", `${tombstone.dataset.path}/${place}`);
      if (asking !== place) return; // the dialog shows another record by now
      const { format, data } = editable(record.key, record.key_base64);
      removed = { partition: record.partition, key: { format, data }, value: null };
      facts.append(
        element("div", {}, element("dt", {}, "Partition"), element("dd", {}, String(record.partition))),
        element("div", {}, element("dt", {}, format === "text" ? "Key" : `Key (${format})`), element("dd", { class: "code" }, data === "" ? badge("empty") : visible(data.slice(0, 500)))),
      );
      writeButton.disabled = false;
      writeButton.focus();
    } catch (error) {
      if (asking === place) showProblem(tombstone, error.message);
    }
  }

  tombstone.querySelector("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    writeButton.disabled = true;
    try {
      await write(tombstone, removed, ({ partition, offset }) => `The tombstone was written to partition ${partition} at offset ${offset}.`);
    } catch (error) {
      showProblem(tombstone, error.message);
      writeButton.disabled = false;
    }
  });

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-resend], [data-tombstone]");
    if (!button) {
      if (event.target.closest('[data-open="produce"]') && !origin.hidden) empty();
      return;
    }
    if ("tombstone" in button.dataset) {
      askTombstone(placeOf(button));
      return;
    }
    try {
      fill(await api("GET", `${produce.dataset.path}/${placeOf(button)}`));
      openDialog("produce");
    } catch (error) {
      toast(error.message, "bad");
    }
  });
  showNulls();
})();
