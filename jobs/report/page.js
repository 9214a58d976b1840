"use strict";
document.documentElement.classList.remove("still");

// A page that was opened as a file, or in a frame, may not be allowed to use the clipboard: then the text is shown, ready to be copied.
async function copied(text, area) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    area.hidden = false;
    area.focus();
    area.select();
    try {
      if (document.execCommand("copy")) {
        area.hidden = true;
        return true;
      }
    } catch { /* it stays selected */ }
    return false;
  }
}

function say(button, text) {
  const label = button.dataset.label ??= button.textContent;
  button.textContent = text;
  setTimeout(() => { button.textContent = label; }, 2500);
}

for (const button of document.querySelectorAll("button[data-copy]")) {
  button.addEventListener("click", async () => {
    const area = document.getElementById(button.dataset.copy);
    const done = await copied(area.value, area);
    if (done) button.focus();
    say(button, done ? "Copied" : "Press Ctrl+C");
  });
}

for (const button of document.querySelectorAll("button[data-save]")) {
  button.addEventListener("click", () => {
    const drawn = new XMLSerializer().serializeToString(button.closest("figure").querySelector("svg"));
    // Programs that know no variables get the colours of a light page.
    const text = drawn.replace(/var\(--c[0-9a-f]{6}, (#[0-9a-f]{6})\)/g, "$1");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
    link.download = button.dataset.save;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    say(button, "Saved");
  });
}
