package rewrite

// Idempotent reports whether the effect of several requests with a method is that of one (RFC 9110 9.2.2): the methods of
// RFC 9110 for which this holds, and those registered as safe by others (RFC 3253, 4918, 5323). Methods are case-sensitive.
func Idempotent(method string) bool {
	switch method {
	case "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "PROPFIND", "REPORT", "SEARCH":
		return true
	}
	return false
}

// Attempt records how far a request came at a backend before it failed.
type Attempt struct {
	Method      string
	Sent        bool // some of the request has gone out
	Unprocessed bool // the backend has said that it did nothing with it (RFC 9113 8.7, RFC 9114 4.1.1)
	Streamed    bool // content has gone out that is no longer there to be sent again
	Responded   bool // the client has got some of the response
}

// MayRepeat reports whether the request may go to another backend: what is to be sent is still there, and either no backend has
// done anything with it, or once more does no harm.
func (a *Attempt) MayRepeat() bool {
	if a.Responded || a.Streamed {
		return false
	}
	return !a.Sent || a.Unprocessed || Idempotent(a.Method)
}
