// A two-dimensional pad that holds two numbers, moved by pointer or arrow keys. A third number counts its moves; a
// fourth value marks answers, which repeat the last count that the server has heard of. Until the newest one has been
// heard of, answers come too late, and the pad stays where the hand has put it. No count means that the server has
// begun afresh: no move is waited for any more, and the pad goes where it is told. A fifth value has the places of the
// pictures, a sixth the line beyond which the model guesses. Listeners sit on the element around the pad, which stays
// when the framework paints the inner part anew. `element`, `props`, `trigger` and `watch` are the framework's.
const reach = REACH;
let moved = [0, 0, 0], heard = 0, marks = [], horizon = [];
const inside = v => Math.max(0, Math.min(100, 50 + v / reach * 50));
const mark = () => {
  const line = element.querySelector('.vs-known polygon'), around = element.querySelector('.vs-marks');
  if (!line || !around) return;
  line.setAttribute('points', horizon.map(([x, y]) => `${50 + x / reach * 50},${50 - y / reach * 50}`).join(' '));
  around.replaceChildren(...marks.map(([x, y], k) => {
    const ring = document.createElement('div');
    ring.className = 'vs-mark';
    ring.textContent = k + 1;
    ring.style.left = inside(x) + '%';
    ring.style.top = (100 - inside(y)) + '%';
    return ring;
  }));
};
const place = () => {
  const [, , count, answered, places, line] = props.value || moved;
  if (places) marks = places;
  if (line) horizon = line;
  mark();
  if (count === null || (answered && count === moved[2])) heard = moved[2];
  else if (count < moved[2] && heard < moved[2]) props.value = moved;
  const dot = element.querySelector('.vs-dot'), pad = element.querySelector('.vs-pad');
  if (!dot || !pad) return;
  const [x, y] = props.value || [0, 0];
  dot.style.left = inside(x) + '%';
  dot.style.top = (100 - inside(y)) + '%';
  pad.dataset.x = x; pad.dataset.y = y;
};
const send = (x, y) => {
  const cut = v => Math.max(-reach, Math.min(reach, Math.round(v * 100) / 100));
  moved = [cut(x), cut(y), moved[2] + 1];
  props.value = moved;
  place();
  trigger('input');
};
const follow = event => {
  const box = element.querySelector('.vs-pad').getBoundingClientRect();
  const x = (event.clientX - box.left) / box.width, y = (event.clientY - box.top) / box.height;
  send((2 * x - 1) * reach, (1 - 2 * y) * reach);
};
let held = false;
element.addEventListener('pointerdown', event => {
  if (!event.target.closest('.vs-pad')) return;
  held = true;
  try { element.setPointerCapture(event.pointerId); } catch { }
  follow(event);
});
element.addEventListener('pointermove', event => { if (held) follow(event); });
for (const end of ['pointerup', 'pointercancel']) element.addEventListener(end, () => { held = false; });
element.addEventListener('keydown', event => {
  const step = event.shiftKey ? 0.5 : 0.15;
  const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
  if (!way) return;
  event.preventDefault();
  const [x, y] = props.value || [0, 0];
  send(x + way[0] * step, y + way[1] * step);
});
watch('value', place);
place();
