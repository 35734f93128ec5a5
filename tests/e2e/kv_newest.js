// kv_newest.js LIBRARY HOST PORT - what a program does with ioredis or node-redis, in their defaults.
const assert = require("assert");
const [library, host, port] = process.argv.slice(2);
const at = { host, port: Number(port) };

async function ioredis() {
	const Redis = require("ioredis");
	const client = new Redis(at); // its ready check reads `loading` of INFO
	await new Promise((resolve, reject) => client.on("ready", resolve).on("error", reject));
	assert.equal(await client.set("io", "value"), "OK");
	assert.equal(await client.get("io"), "value");
	assert.equal(await client.incrby("io:n", 5), 5);
	const many = client.pipeline();
	for (let i = 0; i < 1000; i++) many.set(`io:${i}`, i).get(`io:${i}`);
	const replies = await many.exec();
	for (let i = 0; i < 1000; i++) assert.deepEqual(replies[2 * i + 1], [null, String(i)]);
	assert.deepEqual(await client.mget("io:1", "none", "io:2"), ["1", null, "2"]);
	await assert.rejects(client.expire("io", 5), /records do not expire here/);
	await assert.rejects(client.multi().set("io:multi", 1).incr("io:n").exec(), /MULTI was refused|MULTI is refused|discarded/);
	assert.equal(await client.get("io:multi"), null);
	assert.equal(await client.get("io:n"), "5");
	assert.deepEqual(await client.config("GET", "maxclients"), ["maxclients", "10000"]);
	await client.quit();
}

async function nodeRedis(RESP) {
	const { createClient } = require("redis");
	const client = createClient({ socket: at, RESP, name: "node" });
	await client.connect();
	assert.equal(await client.ping(), "PONG");
	assert.equal(await client.set("node", "value"), "OK");
	assert.equal(await client.get("node"), "value");
	assert.equal(await client.incrBy("node:n", 5), 5);
	assert.deepEqual(await client.mGet(["node", "none"]), ["value", null]);
	assert.equal(await client.set("node", "other", { NX: true }), null);
	assert.deepEqual({ ...(await client.configGet("maxclients")) }, { maxclients: "10000" });
	assert.match(await client.info("server"), /redis_mode:standalone/);
	const keys = [];
	for await (const some of client.scanIterator({ MATCH: "node*" })) keys.push(...[some].flat());
	assert.deepEqual(keys.sort(), ["node", "node:n"]);
	await assert.rejects(client.expire("node", 5), /records do not expire here/);
	await assert.rejects(client.multi().set("node:multi", 1).incr("node:n").exec());
	assert.equal(await client.get("node:multi"), null);
	assert.equal(await client.get("node:n"), "5");
	assert.equal(await client.del(["node", "node:n"]), 2);
	await (client.close ? client.close() : client.quit());
}

(library === "ioredis" ? ioredis() : nodeRedis(2).then(() => nodeRedis(3))).then(
	() => process.exit(0),
	(error) => {
		console.error(error);
		process.exit(1);
	},
);
