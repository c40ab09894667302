// echo.js ADDRESS serves TCP, UDP and HTTP with a cluster of two workers; echo.js ADDRESS client is the client of all, and compares.
const cluster = require('cluster'), crypto = require('crypto'), dgram = require('dgram'), http = require('http'), net = require('net');
const [host, client] = process.argv.slice(2);
const sum = data => crypto.createHash('sha256').update(data).digest('hex');

function serve() {
	if (cluster.isPrimary) {
		cluster.fork();
		cluster.fork();
		const u = dgram.createSocket('udp4');
		u.on('message', (m, from) => u.send(m.reverse(), from.port, from.address)).bind(7203, host);
		process.on('SIGTERM', () => process.exit(0));
		return;
	}
	net.createServer({allowHalfOpen: true}, c => c.pipe(c)).listen(7201, host, 200);
	http.createServer((req, res) => {
		const h = crypto.createHash('sha256');
		req.on('data', d => h.update(d)).on('end', () => res.end(h.digest('hex')));
	}).listen(7202, host, 200);
}

function all(stream) {
	return new Promise((done, failed) => {
		const parts = [];
		stream.on('data', d => parts.push(d)).on('end', () => done(Buffer.concat(parts))).on('error', failed);
	});
}

async function check() {
	const data = crypto.randomBytes(3000000);
	const equal = (a, b) => { if (sum(a) !== sum(b)) throw new Error(`${a.length} bytes differ`); };
	await Promise.all(Array.from({length: 40}, async (_, i) => {
		const c = net.connect(7201, host), mine = data.subarray(i, 500000 + i);
		c.end(mine);
		equal(await all(c), mine);
	}));
	const agent = new http.Agent({keepAlive: true, maxSockets: 10});
	await Promise.all(Array.from({length: 100}, (_, i) => new Promise((done, failed) => {
		const mine = data.subarray(i * 10, i * 20000);
		const req = http.request({host, port: 7202, method: 'POST', agent}, async res => { equal(await all(res), sum(mine)); done(); });
		req.on('error', failed).end(mine);
	})));
	agent.destroy();
	const u = dgram.createSocket('udp4');
	for (let i = 1; i <= 200; i++) {
		const got = new Promise(done => u.once('message', done));
		u.send(data.subarray(0, i * 7), 7203, host);
		equal((await got).reverse(), data.subarray(0, i * 7));
	}
	u.close();
	console.log('equal');
}

if (client) check().catch(e => { console.error(e); process.exit(1); });
else serve();
