// Runs before the page is painted, so that a chosen theme never flashes in the wrong colours.
(() => {
  const chosen = localStorage.getItem("decaf-theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
})();
