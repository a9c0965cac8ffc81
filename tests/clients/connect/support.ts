// What the tests share: a client, runs with names of their own, a proxy that can be cut, and waiting.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer as createHttp2Server, type IncomingHttpHeaders, type ServerHttp2Stream } from "node:http2";
import { type AddressInfo, connect as dial, createServer, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { Code, ConnectError } from "@connectrpc/connect";
import { connect, details } from "./bridge.js";

export const ADDRESS = process.env.RUNLEDGER_TEST_SERVER!;
/** A test that takes longer has failed. */
export const TIMEOUT = { timeout: 60_000 };
/** A client without anything in between. */
export const direct = connect(ADDRESS);

export const newRunId = () => `connect-${randomUUID()}`;

/** Waits until `look` finds something. */
export async function found<T>(look: () => Promise<T | undefined | false>): Promise<T> {
  for (const until = Date.now() + 30_000; Date.now() < until; await sleep(50)) {
    const it = await look();
    if (it) return it;
  }
  return assert.fail("nothing was found in 30 s");
}

/** Checks that a call is refused with this code and reason, and hands back what came with it. */
export async function refused(code: Code, reason: string, call: Promise<unknown>) {
  const error = await call.then(
    () => assert.fail(`the call was not refused with ${reason}`),
    (error: unknown) => error,
  );
  assert.ok(error instanceof ConnectError, String(error));
  const unpacked = details(error);
  assert.deepEqual([unpacked.ErrorInfo?.domain, unpacked.ErrorInfo?.reason], ["runledger", reason], String(error));
  assert.equal(Code[error.code], Code[code]);
  assert.equal(Object.keys(unpacked).length, error.details.length, "each detail comes once, and is known");
  return { ...unpacked, text: error.rawMessage };
}

/** A server on a free port. Neither it nor its connections keep the process alive. */
export async function listen(accept: (socket: Socket) => void): Promise<string> {
  const server = createServer((socket) => accept(socket.unref())).listen(0, "127.0.0.1").unref();
  await once(server, "listening");
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** A server that says what the real one cannot be brought to say. */
export async function pretend(answer: (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void) {
  const server = createHttp2Server().listen(0, "127.0.0.1").unref();
  server.on("session", (session) => session.unref()).on("stream", answer);
  await once(server, "listening");
  return connect(`127.0.0.1:${(server.address() as AddressInfo).port}`);
}

/** A proxy before the server. `admit` says what becomes of each connection, counted from 1. */
export async function proxy(admit: (connection: number) => "whole" | "without answers" | "cut" = () => "whole") {
  const [host, port] = ADDRESS.split(":");
  const sockets = new Set<Socket>();
  const it = {
    address: "",
    connections: 0,
    cut: () => sockets.forEach((socket) => socket.destroy()),
  };
  it.address = await listen((client) => {
    client.on("error", () => {});
    const fate = admit(++it.connections);
    if (fate === "cut") return client.destroy();
    const server = dial(Number(port), host).unref().on("error", () => {});
    sockets.add(client);
    client.on("close", () => sockets.delete(client) && server.destroy());
    server.on("close", () => client.destroy());
    client.pipe(server);
    if (fate === "whole") server.pipe(client);
    else server.resume();
  });
  return it;
}
