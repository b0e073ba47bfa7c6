// What the theme leaves to be done for readers who use no mouse or hear the page: names, and boxes that keys can scroll.
function mend() {
  const search = document.querySelector(".md-search[role=dialog]");
  if (search) search.setAttribute("aria-label", "Search");
  for (const nav of document.querySelectorAll("nav.md-code__nav")) nav.setAttribute("role", "presentation");
  const names = new Map();
  for (const nav of document.querySelectorAll("nav:not([role])")) {
    const label = document.getElementById(nav.getAttribute("aria-labelledby"));
    const name = nav.dataset.name || (label && label.textContent.trim()) || nav.getAttribute("aria-label") || "Pages";
    nav.dataset.name = name;
    const count = (names.get(name) || 0) + 1;
    names.set(name, count);
    const unique = count === 1 ? name : `${name}, ${count}`;
    if (nav.getAttribute("aria-label") === unique) continue;
    nav.removeAttribute("aria-labelledby");
    nav.setAttribute("aria-label", unique);
  }
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
}
document.addEventListener("DOMContentLoaded", mend);
new MutationObserver(mend).observe(document.documentElement, { childList: true, subtree: true });
addEventListener("resize", mend);
