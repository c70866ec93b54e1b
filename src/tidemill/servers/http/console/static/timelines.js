// Messages of timelines: the selection in a list, changes of the selected messages, and retries of many dead letters.
"use strict";

(() => {
  const { api, toast, problemOf, finished, element } = window.tidemill;
  const REASONS_SHOWN = 3;
  const list = document.getElementById("messages");

  function parsed(text) {
    return text ? JSON.parse(text) : {};
  }

  function known(values) {
    return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== null && value !== ""));
  }

  /* The selection. */

  function selected() {
    if ("only" in list.dataset) return [list.dataset.only];
    return [...list.querySelectorAll("input[data-id]:checked")].map((each) => each.dataset.id);
  }

  function showSelection() {
    const shown = list.querySelector("[data-selected]");
    if (!shown) return;
    const count = selected().length;
    shown.textContent = count === 0 ? "No message is selected" : `${count} selected`;
    for (const each of list.querySelectorAll("[data-needs], button[data-change]")) each.disabled = count === 0;
  }

  /* Changes. */

  const DONE = { moves: "moved", cancellations: "cancelled", releases: "released", retries: "retried" };

  function bodyOf(kind, form) {
    const body = { ...parsed(list.dataset.place), ids: selected() };
    if (kind === "moves") body.due_ms = Date.parse(`${form.querySelector("[data-due]").value}Z`);
    return body;
  }

  /** Send a change of the selected messages; throws with the reasons if none was changed. */
  async function change(kind, form) {
    const answer = await api("POST", `${list.dataset.api}/${kind}`, bodyOf(kind, form));
    const failed = answer.outcomes ? answer.outcomes.filter((each) => each.error) : [];
    const done = answer.outcomes ? answer.outcomes.length - failed.length : answer.retried;
    const reasons = answer.outcomes ? [...new Set(failed.map((each) => each.error))] : answer.reasons;
    if (done === 0) throw new Error(reasons.slice(0, REASONS_SHOWN).join("; ") || "Nothing was changed.");
    const rest = reasons.length ? ` Others were not: ${reasons.slice(0, REASONS_SHOWN).join("; ")}` : "";
    const leaves = "only" in list.dataset && kind !== "moves" && kind !== "releases";
    finished(`${done} ${done === 1 ? "message was" : "messages were"} ${DONE[kind]}.${rest}`, leaves ? list.dataset.back : "");
  }

  async function changed(event) {
    const form = event.target;
    if (!form.dataset.change || !list) return;
    event.preventDefault();
    const shown = form.querySelector(".form-problem");
    const button = form.querySelector("button:not([type=button])");
    shown.hidden = true;
    button.disabled = true;
    try {
      await change(form.dataset.change, form);
    } catch (error) {
      shown.textContent = error.message || problemOf(error);
      shown.hidden = false;
    }
    button.disabled = false;
  }

  async function retrySelected(button) {
    button.disabled = true;
    try {
      await change("retries", null);
    } catch (error) {
      toast(error.message || problemOf(error), "bad");
    }
    button.disabled = false;
  }

  /* Retries of all that match: a count first, then steps with their progress. */

  async function steps(path, body, onStep) {
    const total = { done: 0, kept: 0, reasons: new Set() };
    let after;
    do {
      const answer = await api("POST", path, after === undefined ? body : { ...body, after });
      total.done += answer.retried;
      total.kept += answer.kept;
      for (const each of answer.reasons) total.reasons.add(each);
      after = answer.next ?? undefined;
      onStep(total);
    } while (after !== undefined);
    return total;
  }

  function reasonsOf(total) {
    return total.kept ? ` ${total.kept} stay: ${[...total.reasons].slice(0, REASONS_SHOWN).join("; ")}` : "";
  }

  async function retryAll(button) {
    const place = document.getElementById("retry-progress");
    const wanted = known(parsed(button.dataset.retryAll));
    // What fails again while this runs is not retried twice.
    const body = { ...wanted, to_ms: Math.min(wanted.to_ms ?? Infinity, Date.now()) };
    button.disabled = true;
    try {
      const say = (text) => place.replaceChildren(element("p", { class: "note" }, text));
      const preview = await steps(button.dataset.api, { ...body, preview: true }, (total) => say(`Counting: ${total.done} so far.`));
      ask(place, preview, () => run(button, body, preview.done, place));
    } catch (error) {
      toast(problemOf(error), "bad");
    }
    button.disabled = false;
  }

  function ask(place, preview, start) {
    const text = preview.done === 1 ? "1 dead letter returns to its timeline, and is due at once." :
      `${preview.done} dead letters return to their timelines, and are due at once.`;
    if (preview.done === 0) {
      place.replaceChildren(element("p", {}, `Nothing can be retried.${reasonsOf(preview)}`));
      return;
    }
    const yes = element("button", { type: "button", class: "primary small" }, `Retry ${preview.done}`);
    const no = element("button", { type: "button", class: "small" }, "Not now");
    yes.addEventListener("click", start);
    no.addEventListener("click", () => place.replaceChildren());
    place.replaceChildren(element("p", {}, text + reasonsOf(preview)), element("p", { class: "actions" }, yes, no));
    yes.focus();
  }

  async function run(button, body, expected, place) {
    const bar = element("progress", { max: String(expected), value: "0", "aria-label": "Retried dead letters" });
    const count = element("span", { class: "note" }, " 0");
    place.replaceChildren(element("p", {}, bar, count));
    try {
      const total = await steps(button.dataset.api, body, (now) => {
        bar.value = now.done;
        count.textContent = ` ${now.done} of ${expected}`;
      });
      finished(`${total.done} dead letters were retried.${reasonsOf(total)}`);
    } catch (error) {
      toast(`${problemOf(error)} ${count.textContent.trim()} were retried before.`, "bad");
    }
  }

  /* Times: a field for a due time in UTC. */

  function setDue(button) {
    const time = new Date(Date.now() + Number(button.dataset.dueIn) * 1000);
    button.closest("form").querySelector("[data-due]").value = time.toISOString().slice(0, 19);
  }

  function clicked(event) {
    const target = event.target.closest("[data-due-in], button[data-change], [data-retry-all]");
    if (!target) return;
    if ("dueIn" in target.dataset) setDue(target);
    else if ("retryAll" in target.dataset) retryAll(target);
    else retrySelected(target);
  }

  document.addEventListener("click", clicked);
  document.addEventListener("submit", changed);
  if (list) {
    list.addEventListener("change", showSelection);
    showSelection();
  }
})();
