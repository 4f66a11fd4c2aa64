"""How the page looks: a style sheet that follows the browser's light or dark theme and needs no font of a web site."""

FONTS = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "sans-serif"]
MONO_FONTS = ["ui-monospace", "Menlo", "Consolas", "monospace"]

CSS = """
.gradio-container { max-width: 1280px !important; margin: 0 auto !important; overflow: clip !important; }
.vs-main { margin: 0; }
.vs-main img { display: block; width: 100%; max-width: 560px; aspect-ratio: 1; margin: 0 auto; border-radius: 10px; }
.vs-main figcaption { display: flex; flex-wrap: wrap; gap: 4px 16px; justify-content: space-between; max-width: 560px;
  margin: 8px auto 0; }
.vs-save a { margin-left: 8px; padding: 6px 0; text-decoration: underline; }
.vs-waiting { padding: 120px 24px; text-align: center; border: 1px dashed var(--border-color-primary);
  border-radius: 10px; }
#picture .pending { opacity: 1 !important; }
#picture .pending .vs-main { position: relative; }
#picture .pending .vs-main img { opacity: 0.25; }
#picture .pending .vs-main::before { content: "The model looks at the pictures: some seconds";
  position: absolute; z-index: 1; inset: 40% 0 auto; text-align: center; font-weight: 600; }
.vs-note { margin: 2px 0 8px; font-size: 0.92em; opacity: 0.8; }
.block.vs-inset { padding: 10px 14px 4px; background: var(--block-background-fill); }
.vs-inset h3, .vs-inset p { margin: 0 !important; }
#pad { padding: 8px 14px; background: var(--block-background-fill); }
.vs-warning { padding: 8px 12px; border-left: 4px solid #e0a100; background: #e0a10022; border-radius: 4px; }
.vs-strip { display: flex; flex-wrap: wrap; gap: 12px; margin: 4px 0 12px; }
.vs-thumb { display: block; width: 96px; height: 96px; margin: 0 !important; border-radius: 6px; }
.vs-pair { display: flex; flex-direction: column; gap: 4px; align-items: center; }
.vs-card { display: grid; grid-template-columns: auto auto; gap: 4px; padding: 6px;
  border: 1px solid var(--border-color-primary); border-radius: 8px; }
.vs-card span, .vs-pair span { grid-column: 1 / -1; font-size: 0.88em; text-align: center; }
.vs-card .vs-thumb { width: 76px; height: 76px;
  background: repeating-conic-gradient(#9a9a9a 0 25%, #bcbcbc 0 50%) 0 / 16px 16px; }
.vs-off { opacity: 0.6; align-items: end; min-width: 120px; }
.vs-chip { display: inline-block; width: 0.8em; height: 0.8em; margin-right: 6px; border-radius: 50%; }
.vs-wide { overflow-x: auto; }
#facts table { border-collapse: collapse; margin: 6px 0 12px; }
#facts caption { text-align: left; opacity: 0.8; font-size: 0.92em; padding-bottom: 4px; }
#facts table, #facts tr, #facts th, #facts td { border: 0; }
#facts th, #facts td { padding: 4px 14px 4px 0; text-align: left; font-weight: normal; }
#facts tbody tr { border-top: 1px solid var(--border-color-primary); background: none; }
#facts meter { width: 110px; height: 14px; }
#facts abbr { text-decoration: underline dotted; cursor: help; }
#facts dt { font-weight: 600; margin-top: 6px; }
#facts dd { margin: 0; }
@media (max-width: 740px) {
  .vs-columns { display: flex; flex-direction: column; flex-wrap: nowrap; }
  .vs-columns > .column { display: contents; }
  .vs-columns #given, .vs-columns #layers { order: 1; }
  .vs-columns #facts { order: 2; }
  #picture { position: sticky; top: 0; z-index: 60; padding: 8px 0; background: var(--body-background-fill); }
  .vs-main img { max-width: min(100%, 42vh); }
  .vs-main figcaption { justify-content: center; }
  .vs-strip { gap: 6px; }
  .vs-thumb { width: 70px; height: 70px; }
  .vs-card .vs-thumb { width: 56px; height: 56px; }
  #facts th, #facts td { padding-right: 8px; }
  #facts meter { width: 64px; }
}
"""
