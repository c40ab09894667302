package proxyproto

import (
	"errors"
	"net/netip"
)

// Errors of Parse and Append.
var (
	ErrSignature = errors.New("proxyproto: no PROXY protocol header")
	ErrMalformed = errors.New("proxyproto: malformed header")
	ErrTooLong   = errors.New("proxyproto: header too long")
	ErrChecksum  = errors.New("proxyproto: wrong checksum")
	ErrAddress   = errors.New("proxyproto: address does not fit the header") // of Append
)

// Family is the address family of the relayed connection (section 2.2).
type Family uint8

// Values of Family.
const (
	Unspecified Family = iota
	IPv4
	IPv6
	Unix
)

// Transport is the transport protocol of the relayed connection (section 2.2).
type Transport uint8

// Values of Transport.
const (
	Unknown  Transport = iota
	Stream             // TCP, or a stream socket of Unix
	Datagram           // UDP, or a datagram socket of Unix
)

// Header holds the fields of a header. Slices that Parse sets are parts of its input.
type Header struct {
	Version   uint8  // 1 or 2
	Local     bool   // the sender speaks for itself, as with a health check: use the addresses of the connection
	Family    Family // Parse leaves it unspecified where the transport is unknown
	Transport Transport

	Source      netip.AddrPort // of the client, with IPv4 and IPv6
	Destination netip.AddrPort // what the client connected to

	UnixSource      []byte // with Unix: a path, an abstract name that begins with NUL, or nothing
	UnixDestination []byte

	TLVs     TLVs // version 2, in their order
	Checksum bool // version 2: the header had a right CRC32c, or Append is to add one
}

// Relays reports whether the header names the client's IP address and port. Otherwise a server uses the addresses of
// the connection.
func (h *Header) Relays() bool { return h.Source.IsValid() }

// TCP returns the header of a connection from source to destination. Addresses that are not of one family are both
// given as IPv6.
func TCP(version uint8, source, destination netip.AddrPort) Header {
	h := Header{Version: version, Family: IPv4, Transport: Stream, Source: unmap(source), Destination: unmap(destination)}
	if !h.Source.Addr().Is4() || !h.Destination.Addr().Is4() {
		h.Family, h.Source, h.Destination = IPv6, as16(source), as16(destination)
	}
	return h
}

func unmap(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// as16 returns an address as one of 16 bytes, without a zone. An address that is not valid stays so.
func as16(a netip.AddrPort) netip.AddrPort {
	if !a.IsValid() {
		return a
	}
	return netip.AddrPortFrom(netip.AddrFrom16(a.Addr().As16()), a.Port())
}
