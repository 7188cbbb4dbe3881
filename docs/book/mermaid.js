// Draws `mermaid` blocks. Where the library cannot be loaded they stay what they are: text that can be read.
(async () => {
    const blocks = document.querySelectorAll("code.language-mermaid");
    if (blocks.length === 0) return;
    const { default: mermaid } = await import("https://cdn.jsdelivr.net/npm/mermaid@11/dist/mermaid.esm.min.mjs");
    const dark = ["coal", "navy", "ayu"].some((theme) => document.documentElement.classList.contains(theme));
    mermaid.initialize({ startOnLoad: false, theme: dark ? "dark" : "default" });
    for (const block of blocks) {
        const drawing = document.createElement("div");
        drawing.className = "mermaid";
        drawing.textContent = block.textContent;
        block.parentElement.replaceWith(drawing);
    }
    await mermaid.run();
})().catch((reason) => console.warn("mermaid: " + reason));
