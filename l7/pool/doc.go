// Package pool chooses backends for the requests and connections of a proxy, and keeps the state that the choice needs:
// weights, health, ejections, slow start, requests in flight, limits and the retry budget.
//
// It is logic alone. It opens nothing, starts no goroutine and reads no clock: time comes in as an argument, randomness from
// a seed. Several loops share a Pool. Pick, Start and Done read and write atomics and allocate nothing; what is configured is
// a snapshot behind one pointer. Methods that change what is configured take a lock that loops never wait for.
//
//	b, refusal := p.Pick(now, key, &tried)   503 with refusal.String() where b is nil
//	b.Start(now)
//	... the request ...
//	b.Done(now, pool.Outcome{Status: 200, Latency: d})
//
// The proxy owns connections, queues and time-outs, and reports them by ConnOpened, PendingAdded and Done. Active probes are
// those of gateway/health: Probes gives a Checker what to watch and enters what it finds. Tables of consistent hashing are
// those of the L4 gateway (gateway/maglev).
package pool
