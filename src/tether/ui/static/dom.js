// The few things that the screens do to the document. Text is always set as text, never as markup.

/** An element with attributes (class, href, …), properties that begin with "on", and children. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Set a text only where it differs: what is not touched is not laid out again. */
export function text(element, value) {
  if (element && element.textContent !== value) element.textContent = value;
}

export function width(element, share) {
  const wanted = `${(Math.max(0, Math.min(1, share)) * 100).toFixed(2)}%`;
  if (element.style.width !== wanted) element.style.width = wanted;
}

export const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A canvas made ready for its size on screen; null while it has none. */
export function canvas(element) {
  const box = element.getBoundingClientRect();
  if (!box.width) return null;
  const dense = window.devicePixelRatio || 1;
  const wide = Math.round(box.width * dense), high = Math.round(box.height * dense);
  if (element.width !== wide || element.height !== high) { element.width = wide; element.height = high; }
  const brush = element.getContext("2d");
  brush.setTransform(dense, 0, 0, dense, 0, 0);
  brush.clearRect(0, 0, box.width, box.height);
  return { brush, width: box.width, height: box.height };
}
