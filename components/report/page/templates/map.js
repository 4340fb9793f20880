// The map: names of the points, and pictures of those that are elsewhere on the page.
const map = document.querySelector(".map");

function readPoints() {
  return [...map.querySelectorAll("path[data-names]")].flatMap(path => {
    const places = path.getAttribute("d").match(/\d+ \d+/g).map(place => place.split(" ").map(Number));
    const names = path.dataset.names.split("\n");
    return places.map(([x, y], row) => ({ x, y, name: names[row], label: path.dataset.label }));
  });
}

function watchMap() {
  const points = readPoints();
  const frames = new Map([...document.querySelectorAll("[data-path]")].map(
    frame => [frame.dataset.path, frame]));
  const mark = map.querySelector(".mark");
  const pointed = document.querySelector(".pointed");
  let shown = null;
  const find = event => {
    const { x, y } = new DOMPoint(event.clientX, event.clientY)
      .matrixTransform(map.getScreenCTM().inverse());
    const distance = point => Math.hypot(point.x - x, point.y - y);
    const nearest = points.reduce((best, point) => distance(point) < distance(best) ? point : best);
    return distance(nearest) < 30 ? nearest : null;
  };
  const show = event => {
    const point = find(event);
    if (!point || point === shown) return;
    shown = point;
    mark.removeAttribute("visibility");
    mark.setAttribute("cx", point.x);
    mark.setAttribute("cy", point.y);
    pointed.querySelector("strong").textContent = point.label;
    pointed.querySelector("span").textContent = point.name;
    const picture = frames.get(point.name)?.querySelector("img");
    pointed.querySelector(".frame").replaceChildren(...picture ? [picture.cloneNode()] : []);
  };
  map.addEventListener("pointermove", show);
  map.addEventListener("click", event => {
    show(event);
    const button = find(event) && frames.get(shown.name)?.querySelector(".enlarge");
    if (button) enlarge(button);
  });
}

if (map) watchMap();
