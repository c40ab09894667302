// Package encode compresses the content of responses as it passes: gzip, zstd and br.
//
//	e := pool.Get("br")
//	out = e.Append(out, p) // what the encoder lets go of
//	out = e.Flush(out)     // all of what it got, so that the client can read it
//	out = e.End(out)
//	pool.Put(e)
//
// An encoder belongs to one response at a time. Pools bound how many there are, since each holds a window of the content.
//
// RFC 1952 (gzip), RFC 8878 and 9659 (zstd), RFC 7932 (br).
package encode
