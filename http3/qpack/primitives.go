package qpack

import "github.com/millrace/millrace/http2/hpack"

// status is that of HPACK, whose integers and strings QPACK has (RFC 9204 4.1.1, 4.1.2).
type status = hpack.Status

const (
	ok      = hpack.OK
	cut     = hpack.Cut
	invalid = hpack.Invalid
)
