// Package wire reads and writes packet headers in place.
//
// Every header is a view: a named byte slice over bytes that somebody else owns. Making a view is a
// conversion, reading a field is one load. Nothing is copied, kept or allocated; a view is as good
// as the bytes under it and goes when they go.
//
//	ip := wire.IPv4(b)
//	if !ip.Valid() {
//		return packet.DropMalformed
//	}
//	ip.SetTTL(ip.TTL() - 1)
//
// Valid guarantees one thing only: no accessor of this view panics. It checks lengths and versions, never
// meaning and never checksums. An accessor on a view that is not Valid may panic, as indexing a
// slice does. Where a header is followed by bytes that a capture may have cut off, ValidHeader asks
// for the header alone and everything but Payload is safe.
//
// Fields have their natural Go type in host order; lengths and offsets are in bytes whatever unit the
// wire uses. Addresses are arrays by value ([4]byte, [16]byte, MAC), so they compare with == and serve
// as map keys. AppendX writes a new header at the end of a slice, as append does.
//
// Checksums (RFC 1071) are in sum.go, their incremental update (RFC 1624) in update.go.
//
// The package is pure: no goroutines, no clocks, no input or output, no allocation. It knows headers,
// not conversations: reassembly, address resolution and transport state live in ip, udp and tcp.
package wire
