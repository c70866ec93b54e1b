// Topics: dialogs that change a setting, or delete records, of the row whose button opens them.
"use strict";

(() => {
  const { element } = window.tidemill;

  /* Settings. The value is chosen from a list, or typed. */

  function inputFor({ setting, value, type, choices }) {
    const attributes = { name: setting, "data-into": "config", "data-keeps-empty": "", "aria-label": `Value of ${setting}` };
    const options = type === "boolean" ? ["false", "true"] : type === "string" && choices ? choices.split(" ") : [];
    if (options.length) {
      const made = element("select", attributes, ...options.map((each) => element("option", { value: each }, each)));
      made.value = value;
      return made;
    }
    const mode = ["int", "long", "double"].includes(type) ? "decimal" : "text";
    const made = element("input", { ...attributes, autocomplete: "off", spellcheck: "false", inputmode: mode });
    made.value = value;
    return made;
  }

  function fillSetting(dialog, data) {
    for (const each of dialog.querySelectorAll("[data-shown]")) each.textContent = data[each.dataset.shown] || "(empty)";
    const place = dialog.querySelector("[data-setting-input]");
    if (place) {
      const hint = data.choices && data.type === "list" ? [element("span", { class: "note" }, `Of ${data.choices.split(" ").join(", ")}; separate several with commas.`)] : [];
      place.replaceChildren(element("label", { class: "field" }, "Value", inputFor(data), ...hint));
    }
    const hidden = dialog.querySelector("[data-setting-name]");
    if (hidden) hidden.name = data.setting;
  }

  /* Records. */

  function fillDeletion(dialog, data) {
    const before = dialog.querySelector("[data-before]");
    dialog.querySelector("[data-filled=place]").textContent = data.place;
    before.max = data.deleteBelow;
    before.value = data.deleteBelow;
    dialog.dataset.partition = data.partition;
    showDeletion(dialog);
  }

  function showDeletion(dialog) {
    const partition = Number(dialog.dataset.partition);
    const before = Number(dialog.querySelector("[data-before]").value);
    dialog.querySelector("[name=partitions]").value = JSON.stringify([{ partition, before }]);
  }

  for (const each of document.querySelectorAll("[data-all-partitions]")) {
    const all = Array.from({ length: Number(each.dataset.allPartitions) }, (_, partition) => ({ partition, before: -1 }));
    each.value = JSON.stringify(all);
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-setting], [data-delete-below]");
    if (!button) return;
    const dialog = document.getElementById(button.dataset.open);
    if ("setting" in button.dataset) fillSetting(dialog, button.dataset);
    else fillDeletion(dialog, button.dataset);
  }, { capture: true });

  document.addEventListener("input", (event) => {
    if ("before" in event.target.dataset) showDeletion(event.target.closest("dialog"));
  });
})();
