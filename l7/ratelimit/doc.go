// Package ratelimit bounds how often something happens for each of many keys: requests of a client, of an API key, for a path.
//
//	l := ratelimit.New(ratelimit.Options{Requests: 100, Interval: time.Second, Burst: 20, Keys: 1 << 20})
//	if r := l.Take(now, key); !r.Allowed { ... r.RetryAfter ... }
//
// The algorithm is GCRA (the generic cell rate algorithm of ITU-T I.371, described for HTTP by Brandur Leach, "Rate Limiting, Cells,
// and GCRA"). A key has one number, the theoretical arrival time: the time at which all that it has spent is given back. So a key
// whose time has passed is the same as one that is not there, and to forget it is exact.
//
// Memory is fixed. The table has 32 bytes for each of Options.Keys: buckets of eight keys, on average half full, of which each key has
// two. It is in the first, unless that has five keys or more: then in the one that has fewer (after Azar, Broder, Karlin and Upfal,
// "Balanced Allocations", 1999). So with half of the keys in use 19 look-ups in 20 read one cache line, and with as many keys in use as
// Options.Keys, a million, the expected number of full pairs is 1e-7. Beyond it the key that has the least spent makes room, and
// Evicted counts it: it begins anew.
//
// A Limit is shared by all loops. A key that is there is changed by one compare-and-swap, so that what is allowed over all loops
// together is exact. New keys take one of 64 locks, so that two loops do not enter one key twice. Each loop brings its own time:
// one that is behind by d gives back later by d.
//
// The package reads no clock, and hashes nothing: keys are hashes that the caller has made with a secret, as an attacker could else
// fill two buckets.
package ratelimit
