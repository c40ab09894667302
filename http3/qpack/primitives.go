package qpack

import "github.com/millrace/millrace/http2/hpack"

// QPACK has the integers and strings of HPACK (RFC 9204 4.1.1, 4.1.2).
type status = hpack.Status

const (
	ok      = hpack.OK
	cut     = hpack.Cut
	invalid = hpack.Invalid
)
