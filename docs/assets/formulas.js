/* Render the formulas of a page with KaTeX, which is bundled in assets/katex. */
document.addEventListener("DOMContentLoaded", () => {
  for (const formula of document.querySelectorAll(".arithmatex")) {
    const source = formula.textContent.trim();
    katex.render(source.slice(2, -2), formula, {
      displayMode: source.startsWith("\\["),
      throwOnError: false,
    });
  }
});
