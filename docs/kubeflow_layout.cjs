// Lays a graph out as Kubeflow's interface does (frontend/src/lib/v2/StaticFlow.ts, buildGraphLayout).
// Reads {nodes: [key], edges: [[from, to]]} from its input, writes {key: {x, y}}: centres, pixels.
const dagre = require("dagre");

const given = JSON.parse(require("fs").readFileSync(0, "utf8"));
const graph = new dagre.graphlib.Graph();
graph.setDefaultEdgeLabel(() => ({}));
graph.setGraph({ rankdir: "TB" });
for (const key of given.nodes) graph.setNode(key, { width: 224, height: 48 });
for (const [from, to] of given.edges) graph.setEdge(from, to);
dagre.layout(graph);
const places = given.nodes.map((key) => [key, { x: graph.node(key).x, y: graph.node(key).y }]);
console.log(JSON.stringify(Object.fromEntries(places)));
