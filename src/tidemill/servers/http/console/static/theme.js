// Applies the theme that the user has chosen before the page is painted. Without a choice, the system decides.
"use strict";

try {
  const chosen = localStorage.getItem("theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage is off in this browser.
}
document.documentElement.classList.add("scripts");
