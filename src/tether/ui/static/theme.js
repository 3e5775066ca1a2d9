// Light, dark, or as the system; remembered by the browser where it remembers anything.

const ORDER = ["auto", "light", "dark"];
const dark = window.matchMedia("(prefers-color-scheme: dark)");
let wish = "auto";
try { wish = localStorage.getItem("tether-theme") || "auto"; } catch { /* a private window */ }

const listeners = [];
export const onTheme = (listener) => listeners.push(listener);

function apply() {
  const shown = wish === "auto" ? (dark.matches ? "dark" : "light") : wish;
  document.documentElement.dataset.theme = shown;
  document.documentElement.style.colorScheme = shown;
  listeners.forEach((listener) => listener());
}

export function nextTheme() {
  wish = ORDER[(ORDER.indexOf(wish) + 1) % ORDER.length];
  try { localStorage.setItem("tether-theme", wish); } catch { /* a private window */ }
  apply();
  return wish;
}

dark.addEventListener("change", apply);
apply();
