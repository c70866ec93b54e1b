// The pages of users, ACLs and quotas: passwords that are shown once, and changes of ACLs that are previewed first.
// Names are put into the page as text only.
"use strict";

(() => {
  const { api, element, finished, openDialog, showProblem } = window.tidemill;
  const KINDS = ["user", "client-id", "ip"];

  /** Run a change of a form. Its button works again when the change has failed. */
  async function attempt(form, change) {
    const button = form.querySelector("button:not([type=button])");
    button.disabled = true;
    showProblem(form, "");
    try {
      await change();
    } catch (error) {
      showProblem(form, error.message);
    }
    button.disabled = false;
  }

  function lines(text) {
    return text.split("\n").map((each) => each.trim()).filter((each) => each !== "");
  }

  /* Users. */

  function startUsers() {
    for (const form of document.querySelectorAll("#add-user form, #set-password form")) {
      const { generate, password } = form.elements;
      generate.addEventListener("change", () => {
        password.disabled = generate.checked;
        password.required = !generate.checked;
        if (generate.checked) password.value = "";
      });
      form.addEventListener("api-done", (event) => {
        if (!event.detail?.password) return;
        event.preventDefault();
        showPassword(event.detail.password, form);
      });
    }
    const removal = document.querySelector("#remove-user form");
    const typed = removal.querySelector("[data-typed-user]");
    const button = removal.querySelector("button.danger");
    const check = () => { button.disabled = typed.value !== removal.elements.user.value; };
    typed.addEventListener("input", check);
    document.addEventListener("click", (event) => {
      const opener = event.target.closest("[data-open=remove-user]");
      if (!opener) return;
      typed.value = "";
      removal.elements.last_super.checked = false;
      removal.querySelector("[data-own]").hidden = opener.dataset.isOwn === "";
      removal.querySelector("[data-insist]").hidden = opener.dataset.isOwn === "" && opener.dataset.isSuper === "";
      removal.querySelector("[data-acl-count]").textContent = opener.dataset.acls;
      showProblem(removal, "");
      button.disabled = true;
    });
  }

  function showPassword(password, form) {
    const dialog = document.getElementById("shown-password");
    form.closest("dialog").close();
    dialog.querySelector("[data-password]").textContent = password;
    dialog.querySelector("[data-copy]").dataset.copy = password;
    dialog.addEventListener("close", () => finished(form.dataset.message));
    dialog.showModal();
  }

  /* ACLs. */

  function startAcls() {
    const grant = document.querySelector("#grant form");
    const fields = grant.elements;
    const operations = grant.querySelector("[data-operations]");
    const showOperations = () => {
      if (fields.deny.value) fields.preset.value = "";
      operations.hidden = fields.preset.value !== "";
    };
    fields.preset.addEventListener("change", () => {
      if (fields.preset.value) fields.deny.value = "";
      showOperations();
    });
    fields.deny.addEventListener("change", showOperations);
    showOperations();
    grant.addEventListener("submit", (event) => {
      event.preventDefault();
      attempt(grant, () => review("/api/v1/acls", grantOf(fields), {
        title: fields.deny.value ? "Deny" : "Grant", button: fields.deny.value ? "Deny" : "Grant", message: "The rights were changed.",
      }));
    });
    document.addEventListener("click", (event) => {
      const one = event.target.closest("[data-revoke]");
      const all = event.target.closest("[data-revoke-all]");
      if (!one && !all) return;
      const words = { title: "Revoke", button: "Revoke", message: "The ACLs were revoked.", isDanger: true };
      if (one) {
        const { principal, permission, operation, resource, name, pattern, host } = one.dataset;
        open({ acls: [{ principal, permission, operation, resource, name, pattern, host }] }, words);
      } else {
        const principal = all.dataset.revokeAll;
        open({ principals: [principal], all: true }, { ...words, typed: principal });
      }
    });
    const open = async (body, words) => {
      try {
        await review("/api/v1/acls/revocations", body, words);
      } catch (error) {
        window.tidemill.toast(error.message, "bad");
      }
    };
    document.querySelector("#review form").addEventListener("submit", (event) => event.preventDefault());
  }

  function grantOf(fields) {
    const body = {
      principals: lines(fields.principals.value),
      topics: lines(fields.topics.value),
      groups: lines(fields.groups.value),
      transactional_ids: lines(fields.transactional_ids.value),
      hosts: lines(fields.hosts.value),
      cluster: fields.cluster.checked,
      prefix: fields.prefix.checked,
      deny: fields.deny.value !== "",
    };
    if (fields.preset.value) body[fields.preset.value] = true;
    else body.operations = [...fields.operations].filter((each) => each.checked).map((each) => each.value);
    return body;
  }

  /** Show what a change would do, and make it after a confirmation. */
  async function review(path, body, words) {
    const found = await api("POST", path, { ...body, dry_run: true });
    const dialog = document.getElementById("review");
    const form = dialog.querySelector("form");
    const button = form.querySelector("button:not([type=button])");
    dialog.querySelector("h2").textContent = `${words.title} ${found.acls.length} ${found.acls.length === 1 ? "ACL" : "ACLs"}`;
    dialog.querySelector("tbody").replaceChildren(...found.acls.map((row) => element(
      "tr", {},
      ...[row.principal, row.permission, row.operation, `${row.resource} ${row.name}${row.pattern === "prefixed" ? "…" : ""}`, row.host]
        .map((text) => element("td", { class: "cut", title: text }, text)),
    )));
    dialog.querySelector("[data-warnings]").replaceChildren(...found.warnings.map((text) => element("p", { class: "note" }, text)));
    const loss = dialog.querySelector("[data-loss]");
    loss.hidden = found.loses.length === 0;
    loss.querySelector("span").textContent = `I accept that I lose ${found.loses.join(", ")} on the cluster myself`;
    const accepted = loss.querySelector("input");
    accepted.checked = false;
    const typed = dialog.querySelector("[data-typed]");
    typed.hidden = !words.typed;
    typed.querySelector("code").textContent = words.typed || "";
    const text = typed.querySelector("input");
    text.value = "";
    button.textContent = words.button;
    button.className = words.isDanger || found.loses.length ? "danger" : "primary";
    const check = () => {
      button.disabled = (found.loses.length > 0 && !accepted.checked) || (Boolean(words.typed) && text.value !== words.typed);
    };
    accepted.onchange = check;
    text.oninput = check;
    check();
    showProblem(form, "");
    button.onclick = () => attempt(form, async () => {
      await api("POST", path, { ...body, accept_loss: accepted.checked });
      finished(words.message);
    });
    if (!dialog.open) dialog.showModal();
    (words.typed ? text : found.loses.length ? accepted : button).focus();
  }

  /* Quotas. */

  function startQuotas() {
    const form = document.querySelector("#quota form");
    const fields = form.elements;
    let known = {};
    const show = () => {
      const kinds = fields.kind.value.split(" ");
      for (const part of form.querySelectorAll("[data-entity]")) part.hidden = !kinds.includes(part.dataset.entity);
      for (const kind of KINDS) fields[kind].disabled = fields[`every-${kind}`].checked;
      for (const limit of form.querySelectorAll("[data-limit]")) {
        limit.hidden = (limit.dataset.limit === "connection_creation_rate") !== kinds.includes("ip");
      }
    };
    form.addEventListener("change", show);
    const fill = (entity, values) => {
      known = values;
      form.reset();
      if (entity) fields.kind.value = KINDS.filter((kind) => kind in entity).join(" ");
      for (const [kind, name] of Object.entries(entity || {})) {
        fields[kind].value = name ?? "";
        fields[`every-${kind}`].checked = name === null;
      }
      for (const [name, value] of Object.entries(values)) fields[name].value = value;
      showProblem(form, "");
      show();
      openDialog("quota");
    };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      attempt(form, async () => {
        const quotas = {};
        for (const limit of form.querySelectorAll("[data-limit]:not([hidden])")) {
          const name = limit.dataset.limit;
          if (fields[name].value !== "") quotas[name] = Number(fields[name].value);
          else if (name in known) quotas[name] = null;
        }
        if (!Object.keys(quotas).length) throw new Error("Give at least one limit.");
        const entity = {};
        for (const kind of fields.kind.value.split(" ")) entity[kind] = fields[`every-${kind}`].checked ? null : fields[kind].value;
        await api("PUT", "/api/v1/quotas", { entity, quotas });
        finished("The quota was set.");
      });
    });
    const removal = document.querySelector("#quota-removal form");
    let removed = {};
    removal.addEventListener("submit", (event) => {
      event.preventDefault();
      attempt(removal, async () => {
        await api("POST", "/api/v1/quotas/removals", { entity: removed });
        finished("The quotas were removed.");
      });
    });
    document.addEventListener("click", (event) => {
      const change = event.target.closest("[data-quota]");
      if (change) fill(change.dataset.quota ? JSON.parse(change.dataset.quota) : null, JSON.parse(change.dataset.values || "{}"));
      const remove = event.target.closest("[data-quota-removal]");
      if (!remove) return;
      removed = JSON.parse(remove.dataset.quotaRemoval);
      removal.querySelector("[data-entity-text]").textContent = remove.dataset.text;
      showProblem(removal, "");
      openDialog("quota-removal");
    });
  }

  function startApplied(form) {
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      attempt(form, async () => {
        const { user, client_id: clientId, ip } = form.elements;
        const query = new URLSearchParams();
        for (const field of [user, clientId, ip]) if (field.value) query.set(field.name, field.value);
        const { quotas } = await api("GET", `/api/v1/quotas/applied?${query}`);
        const result = form.querySelector("[data-result]");
        result.replaceChildren(...quotas.map((row) => element("li", {}, `${row.quota}: ${row.value}, from ${
          Object.entries(row.entity).map(([kind, name]) => (name === null ? `every other ${kind}` : `${kind} ${name}`)).join(", ")}`)));
        if (!quotas.length) result.append(element("li", {}, "No quota limits this client."));
      });
    });
  }

  if (document.getElementById("add-user")) startUsers();
  if (document.getElementById("grant")) startAcls();
  if (document.getElementById("quota")) startQuotas();
  const applied = document.getElementById("applied");
  if (applied) startApplied(applied);
})();
