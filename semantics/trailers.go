package semantics

import (
	"slices"
	"strings"
)

// TrailerUse selects how a recipient treats a field after the content.
type TrailerUse uint8

// Values of TrailerUse.
const (
	TrailerKept TrailerUse = iota
	TrailerDropped
	TrailerRefused
)

// UseOfTrailer defines what a recipient does with a field after the content. One that frames or routes the message is refused,
// because some recipients merge trailers into a header that others have already used. Those that a header decides are dropped
// (RFC 9110 6.5.1), and what identifies the client: a proxy has written that into the header.
func UseOfTrailer(name string) TrailerUse {
	switch name {
	case "content-length", "transfer-encoding", "host", "connection", "proxy-connection", "keep-alive", "upgrade", "te", "trailer":
		return TrailerRefused
	case "authorization", "cookie", "expect", "range", "forwarded":
		return TrailerDropped
	}
	if strings.HasPrefix(name, forwardedPrefix) || slices.Contains(decidedByHeader, name) || !IsPlainName(name) && readAsHeader(name) {
		return TrailerDropped
	}
	return TrailerKept
}

// forwardedPrefix begins the names by which proxies speak of a client.
const forwardedPrefix = "x-forwarded-"

// decidedByHeader are names with a hyphen whose fields a header decides.
var decidedByHeader = []string{
	"proxy-authorization", "set-cookie", "content-encoding", "content-type", "content-range", "cache-control", "max-forwards", "x-real-ip", "client-cert",
	"client-cert-chain", "early-data",
}

// framingNames are those of the refused ones that have a hyphen.
var framingNames = []string{"content-length", "transfer-encoding", "proxy-connection", "keep-alive"}

// readAsHeader reports whether a name becomes the variable of a field that a header decides.
func readAsHeader(name string) bool {
	same := func(other string) bool { return SameVariable(name, other) }
	return len(name) > len(forwardedPrefix) && SameVariable(name[:len(forwardedPrefix)], forwardedPrefix) ||
		slices.ContainsFunc(decidedByHeader, same) || slices.ContainsFunc(framingNames, same)
}

// ReadTrailers validates the field section of trailers of HTTP/2 or HTTP/3, which have no pseudo-headers (RFC 9113 8.1, RFC
// 9114 4.3), and returns those of the fields that are kept, in the same array. The error is a Violation.
func ReadTrailers(fields []Field) (kept []Field, err error) { return readTrailers(fields, false) }

// ReadResponseTrailers is ReadTrailers for a response. Fields that frame or route are dropped there (RFC 9110 6.5.1): a server that
// repeats its header in trailers would cost its clients whole responses.
func ReadResponseTrailers(fields []Field) (kept []Field, err error) {
	return readTrailers(fields, true)
}

func readTrailers(fields []Field, lenient bool) (kept []Field, err error) {
	kept = fields[:0]
	for i := range fields {
		f := fields[i]
		if isPseudo(f.Name) {
			return nil, PseudoUnknown
		}
		if err := checkField(&f); err != nil {
			return nil, err
		}
		switch use := UseOfTrailer(f.Name); {
		case use == TrailerRefused && !lenient:
			return nil, BadTrailer
		case use == TrailerKept:
			kept = append(kept, f)
		}
	}
	return kept, nil
}
