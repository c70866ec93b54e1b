// The page of one group: the dialogs that reset offsets and that skip a record. Both show a preview first, and the
// change carries what the preview has shown. Names and keys are put into the page as text only.
"use strict";

(() => {
  const { api, element, finished, openDialog, showProblem, timeText } = window.tidemill;
  const ROWS_SHOWN = 500;
  const OFFSETS_AT_ONCE = 1000;
  const MINUTE_MS = 60_000;

  const numbers = new Intl.NumberFormat("en");

  function count(records, one, many) {
    return `${numbers.format(records)} ${records === 1 ? one : many}`;
  }

  /* Reset. */

  const reset = document.getElementById("reset");
  if (!reset) return;
  const choice = document.getElementById("reset-choice");
  const preview = document.getElementById("reset-preview");
  const resetButton = reset.querySelector('button[form="reset-preview"]');
  let planned = [];

  function showFields() {
    for (const field of choice.querySelectorAll("[data-for]")) {
      const isUsed = field.dataset.for === choice.elements.to.value;
      field.hidden = !isUsed;
      for (const input of field.querySelectorAll("input")) input.disabled = !isUsed;
    }
    forget();
  }

  /** A preview that does not fit the fields any more must not be made. */
  function forget() {
    planned = [];
    preview.hidden = true;
    resetButton.disabled = true;
    showProblem(reset, "");
  }

  function target() {
    const fields = choice.elements;
    const to = fields.to.value;
    if (to === "time") {
      const timeMs = Date.parse(`${fields.time.value}Z`);
      if (Number.isNaN(timeMs)) throw new Error("Give a time, for example 2030-01-31 12:00:00.");
      return { to, time_ms: timeMs };
    }
    if (to === "duration") return { to, duration_ms: Math.round(Number(fields.minutes.value) * MINUTE_MS) };
    if (to === "shift") return { to, by: Number(fields.by.value) };
    if (to === "offset") return { to, offset: Number(fields.offset.value) };
    return { to };
  }

  function listed(text) {
    return text.split(",").map((each) => each.trim()).filter((each) => each !== "");
  }

  function selection() {
    const topics = listed(choice.elements.topics.value);
    const partitions = listed(choice.elements.partitions.value);
    if (partitions.length && topics.length !== 1) throw new Error("Name one topic for these partitions.");
    if (partitions.some((each) => !/^\d+$/.test(each))) throw new Error("Partitions are numbers, for example 0, 3, 5.");
    if (!topics.length) return undefined;
    return topics.map((topic) => (partitions.length ? { topic, partitions: partitions.map(Number) } : { topic }));
  }

  function summarize() {
    let skipped = 0;
    let again = 0;
    for (const { row, input, records } of planned) {
      const to = input ? Number(input.value) : row.to;
      const moved = row.from === null ? 0 : to - row.from;
      if (records) records.textContent = row.from === null ? "new" : numbers.format(moved);
      if (moved > 0) skipped += moved;
      else again -= moved;
    }
    const parts = count(planned.length, "partition", "partitions");
    document.getElementById("reset-summary").textContent =
      `${parts}: ${count(again, "record is", "records are")} read again, ${count(skipped, "is", "are")} skipped.`;
  }

  function show(found) {
    const body = preview.querySelector("tbody");
    body.replaceChildren();
    planned = found.partitions.map((row, number) => {
      if (number >= ROWS_SHOWN) return { row };
      const input = element("input", { type: "number", min: "0", required: "", value: String(row.to), "aria-label": `New offset of ${row.topic}-${row.partition}` });
      const records = element("td", { class: "n" });
      input.addEventListener("input", summarize);
      body.append(element(
        "tr", {},
        element("td", { class: "cut" }, row.topic),
        element("td", { class: "n" }, String(row.partition)),
        element("td", { class: "n" }, row.from === null ? "none" : numbers.format(row.from)),
        element("td", { class: "n" }, input),
        records,
      ));
      return { row, input, records };
    });
    if (planned.length > ROWS_SHOWN) {
      body.append(element("tr", {}, element("td", { colspan: "5" }, `and ${numbers.format(planned.length - ROWS_SHOWN)} more partitions`)));
    }
    summarize();
    preview.hidden = false;
    resetButton.disabled = found.refusal !== null;
    showProblem(reset, found.refusal || "");
  }

  choice.addEventListener("input", forget);
  choice.elements.to.addEventListener("change", showFields);
  choice.addEventListener("submit", async (event) => {
    event.preventDefault();
    forget();
    try {
      show(await api("POST", reset.dataset.path, { target: target(), topics: selection(), dry_run: true }));
      (resetButton.disabled ? preview.querySelector("input") : resetButton)?.focus();
    } catch (error) {
      showProblem(reset, error.message);
    }
  });

  preview.addEventListener("submit", async (event) => {
    event.preventDefault();
    resetButton.disabled = true;
    const offsets = planned.map(({ row, input }) => ({
      topic: row.topic, partition: row.partition, offset: input ? Number(input.value) : row.to, previous: row.from,
    }));
    try {
      for (let start = 0; start < offsets.length; start += OFFSETS_AT_ONCE) {
        const some = offsets.slice(start, start + OFFSETS_AT_ONCE);
        await api("POST", reset.dataset.path, { target: { to: "offsets", offsets: some } });
      }
      finished("The offsets were reset.");
    } catch (error) {
      showProblem(reset, error.message);
    }
  });
  showFields();

  /* Skip a record. */

  const skip = document.getElementById("skip");
  const skipButton = skip.querySelector("button.danger");
  let skipping = null;
  let asking = null;

  function fact(name, value) {
    return element("div", {}, element("dt", {}, name), element("dd", {}, value));
  }

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-skip]");
    if (!button) return;
    const place = { topic: button.dataset.topic, partition: Number(button.dataset.partition) };
    asking = place;
    const facts = document.getElementById("skip-record");
    facts.replaceChildren(fact("Partition", `${place.topic}-${place.partition}`));
    skipButton.disabled = true;
    showProblem(skip, "");
    openDialog("skip");
    try {
      const found = await api("POST", skip.dataset.path, { ...place, dry_run: true });
      if (asking !== place) return; // the dialog shows another partition by now
      skipping = { ...place, offset: found.offset };
      const link = `/topics/${encodeURIComponent(place.topic)}/records?partition=${place.partition}&offset=${found.offset}`;
      facts.append(
        fact("Offset", element("a", { href: link }, numbers.format(found.offset))),
        fact("Time (UTC)", timeText(found.time_ms)),
        fact(found.key_is_base64 ? "Key (base64)" : "Key", found.key === null ? "none" : found.key),
        fact("Value", found.value_bytes === null ? "none" : count(found.value_bytes, "byte", "bytes")),
        fact("Committed offset", `${numbers.format(found.from)} to ${numbers.format(found.to)}`),
      );
      skipButton.disabled = found.refusal !== null;
      showProblem(skip, found.refusal || "");
      if (!skipButton.disabled) skipButton.focus();
    } catch (error) {
      if (asking === place) showProblem(skip, error.message);
    }
  });

  skip.querySelector("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    skipButton.disabled = true;
    try {
      await api("POST", skip.dataset.path, skipping);
      finished("The record is skipped.");
    } catch (error) {
      showProblem(skip, error.message);
    }
  });
})();
