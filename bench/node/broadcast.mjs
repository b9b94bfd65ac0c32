// The baseline of fan-out on Node: ws with nothing around it, doing what
// bench/raw.go does. It prints its address and ends with its standard input.
import { createServer } from "node:http";
import { WebSocketServer } from "ws";

const viewers = new Set();
let order = { cursor: "", items: [] };
let n = 0;

function broadcast(o) {
  if (o.items?.length) order = o;
  for (let i = 0; i < o.frames; i++) {
    // Made once for all: the cheapest that the API offers.
    const frame = Buffer.from(
      `{"type":"events","n":${n + 1},"cursor":"${order.cursor}","items":[${order.items.join(",")}]}`,
    );
    n += order.items.length;
    for (const v of viewers) v.send(frame, { binary: false });
  }
}

const http = createServer();
const wss = new WebSocketServer({ server: http, perMessageDeflate: false, handleProtocols: () => "parley.v1" });
wss.on("connection", (ws) => {
  ws.on("error", () => ws.terminate());
  ws.on("close", () => viewers.delete(ws));
  ws.on("message", (raw) => {
    const text = raw.toString();
    if (text.startsWith('{"type":"broadcast"')) {
      broadcast(JSON.parse(text));
    } else if (text.includes('"type":"hello"')) {
      ws.send('{"type":"ready","resumed":true,"cursor":"none"}');
      ws.send('{"type":"caught_up","cursor":"none"}');
      viewers.add(ws);
    } // acks are read and dropped
  });
});
http.listen(0, "127.0.0.1", 4096, () => console.log(`127.0.0.1:${http.address().port}`));
process.stdin.on("end", () => process.exit(0)).resume();
