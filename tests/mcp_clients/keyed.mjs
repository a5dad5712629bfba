// A proxy that adds a key to what passes through it, for clients that cannot send one. It prints its
// URL, and ends with its standard input.

import http from "node:http";

const upstream = new URL(process.env.MCP_URL);
const key = process.env.TOLLGATE_API_KEY;

const server = http.createServer((request, response) => {
  const headers = { ...request.headers, authorization: `Bearer ${key}` };
  const { hostname, port } = upstream;
  const asked = http.request(
    { hostname, port, path: request.url, method: request.method, headers },
    (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    },
  );
  asked.on("error", () => response.destroy());
  response.on("close", () => asked.destroy());
  request.pipe(asked);
});

server.listen(0, "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${server.address().port}${upstream.pathname}`);
});
process.stdin.on("end", () => process.exit(0)).resume();
