// Tabs, sorting and hovering; without it the page says the same.
"use strict";
const tabs = [...document.querySelectorAll("nav a")];
if (tabs.length) {
  const list = document.querySelector("nav ul");
  const panels = tabs.map((tab) => document.querySelector(tab.hash).closest("section"));
  const choose = (chosen, focus) => {
    tabs.forEach((tab, place) => {
      tab.setAttribute("aria-selected", place === chosen);
      tab.tabIndex = place === chosen ? 0 : -1;
      panels[place].hidden = place !== chosen;
    });
    if (focus) tabs[chosen].focus();
  };
  list.setAttribute("role", "tablist");
  list.setAttribute("aria-label", "Runs");
  list.parentNode.removeAttribute("aria-label");
  list.parentNode.setAttribute("role", "presentation");
  tabs.forEach((tab, place) => {
    tab.parentNode.setAttribute("role", "presentation");
    tab.setAttribute("role", "tab");
    tab.id = `tab-${place}`;
    panels[place].id = `panel-${place}`;
    tab.setAttribute("aria-controls", panels[place].id);
    panels[place].setAttribute("role", "tabpanel");
    panels[place].setAttribute("aria-labelledby", tab.id);
    tab.addEventListener("click", (event) => {
      event.preventDefault();
      history.replaceState(null, "", tab.hash);
      choose(place);
    });
    tab.addEventListener("keydown", (event) => {
      const last = tabs.length - 1;
      const to = { ArrowRight: place === last ? 0 : place + 1, ArrowLeft: place === 0 ? last : place - 1, Home: 0, End: last, " ": place }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      choose(to, true);
    });
  });
  choose(Math.max(0, tabs.findIndex((tab) => tab.hash === location.hash)));
}
for (const table of document.querySelectorAll("table.sortable")) {
  table.querySelectorAll("thead th").forEach((heading, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const down = heading.getAttribute("aria-sort") === "ascending";
      for (const other of heading.parentNode.children) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => row.children[place].dataset.sort ?? row.children[place].textContent.trim();
      const rows = [...table.tBodies[0].rows].sort((one, other) => {
        const [a, b] = [key(one), key(other)];
        const found = a !== "" && b !== "" && !isNaN(a) && !isNaN(b) ? a - b : a.localeCompare(b);
        return down ? -found : found;
      });
      table.tBodies[0].append(...rows);
    });
  });
}
const tip = document.createElement("div");
tip.id = "tip";
tip.hidden = true;
tip.setAttribute("aria-hidden", "true");
document.body.append(tip);
document.addEventListener("pointermove", (event) => {
  const words = event.target.closest?.("[data-tip]")?.dataset.tip;
  tip.hidden = !words;
  if (!words) return;
  tip.textContent = words;
  tip.style.left = `${Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${Math.max(event.clientY - tip.offsetHeight - 12, 8)}px`;
});
