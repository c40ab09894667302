// Package cache is a shared cache of HTTP (RFC 9111): what may be stored, for how long it is fresh, how it is validated and answered with,
// and the memory that holds it.
//
//	entry, why := policy.New(key, &request, response, times)   // nil: it must not be stored
//	cache.Store(entry.Complete(content), mark)
//	entry, miss := cache.Lookup(&query)
//	switch entry.Use(&policy, control, now) { ... }
//	answer := entry.Answer(method, fields)
//
// A Cache is one for all event loops. Looking up takes no lock: entries are not changed once they are stored, and lists of them are
// replaced as a whole. What is removed is freed by the collector once no response needs it. A hit writes one counter of the entry.
// Whatever changes the cache takes one mutex for the time of a few pointers.
//
// Memory is bounded by bytes. Entries leave by S3-FIFO (Yang et al., SOSP 2023): new ones pass a small queue first, in which those that are
// not asked for again are dropped, so that a scan evicts other scans; and no hit moves an entry in a list.
//
// A Disk is a second level in files: one goroutine writes them, and a loop that looks for a response does not wait for it.
//
// The package has no connections, and apart from Disk reads no clock: time comes in as an argument. RFC 9111, 5861 (stale responses), 9110 8.8, 13 and 14
// (validators, conditions, ranges), 9211 (Cache-Status), 9213 (CDN-Cache-Control).
package cache
