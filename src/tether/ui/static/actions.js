// The buttons. Each is there only where the running query can do it; what kills asks twice.

import { h } from "./dom.js";
import { known } from "./store.js";

const NAMES = { snapshot: "Snapshot now", heal: "Heal now", drill: "Drill: kill a process" };
const word = document.querySelector('meta[name="tether-word"]').content;

async function ask(name, body) {
  const query = known.query ? `?query=${encodeURIComponent(known.query.id)}` : "";
  const answer = await fetch(`api/do/${name}${query}`, {
    method: "POST", headers: { "content-type": "application/json", "x-tether-word": word }, body: JSON.stringify(body),
  });
  const told = await answer.text();
  try { return JSON.parse(told); } catch { return { error: told }; }
}

function sure(question) {
  const dialog = document.getElementById("ask");
  dialog.querySelector("p").textContent = question;
  return new Promise((resolve) => {
    const done = (value) => { dialog.close(); resolve(value); };
    dialog.querySelector(".yes").onclick = () => done(true);
    dialog.querySelector(".no").onclick = () => done(false);
    dialog.oncancel = () => resolve(false);
    dialog.showModal();
  });
}

export function buttons() {
  const output = h("output", { "aria-live": "polite" });
  const row = h("div", { class: "buttons" });
  const press = async (name, button) => {
    button.disabled = true;
    output.textContent = "Asking the query …";
    try {
      let told = await ask(name, {});
      if (told.ask) told = (await sure(told.ask)) ? await ask(name, { confirm: told.confirm }) : { done: "Left alone." };
      output.textContent = told.done || told.error || "";
    } catch { output.textContent = "Nobody answers."; } finally { button.disabled = false; }
  };
  let shown = null;
  row.show = (names) => {
    if (shown === names.join()) return;
    shown = names.join();
    row.replaceChildren(...names.map((name) => {
      const button = h("button", { type: "button", class: name === "drill" ? "danger" : "", "data-action": name }, NAMES[name] || name);
      button.addEventListener("click", () => press(name, button));
      return button;
    }), output);
  };
  return row;
}
