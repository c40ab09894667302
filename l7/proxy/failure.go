package proxy

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/semantics"
)

// failure is the reason why the gateway answers by itself: a status, and the error type of Proxy-Status (RFC 9209 2.3). Failures are
// compared by identity: several have the same status and name, and differ in what may follow them.
type failure struct {
	status      int
	name        string
	class       pool.Failure
	unprocessed bool // the backend has not processed the request: it may be sent again
}

func (f *failure) Error() string { return "proxy: " + f.name }

// withStatus returns f with another status. A copy keeps the class, which a literal could forget: NoFailure would count
// as a success of the backend and reset its streak of failures.
func (f *failure) withStatus(status int) *failure {
	other := *f
	other.status = status
	return &other
}

// The failures. The class decides what the pool learns: only classes of the backend count against its health. Canceled is for all
// that a client or this host has caused, so that a client cannot have backends ejected, nor a host that is out of descriptors
// eject all of them. Statuses follow RFC 9110 15.6: 502 for a backend that answers wrongly, 503 for none that could be asked, 504
// for one that is too slow.
var (
	errNoRoute        = &failure{status: 404, name: "destination_not_found", class: pool.Canceled}
	errUnavailable    = &failure{status: 503, name: "destination_unavailable", class: pool.Canceled}
	errMaintenance    = &failure{status: 503, name: "http_request_denied", class: pool.Canceled}
	errLimit          = &failure{status: 503, name: "connection_limit_reached", class: pool.Canceled}
	errBackendFull    = &failure{status: 503, name: "connection_limit_reached", class: pool.Canceled, unprocessed: true}
	errRefused        = &failure{status: 502, name: "connection_refused", class: pool.Refused}
	errConnect        = &failure{status: 502, name: "destination_ip_unroutable", class: pool.Refused}
	errUnsent         = &failure{status: 502, name: "connection_terminated", class: pool.Reset, unprocessed: true} // nothing of the request has left
	errStale          = &failure{status: 502, name: "connection_terminated", class: pool.Reset}                    // as errTerminated, and it had been idle
	errTerminated     = &failure{status: 502, name: "connection_terminated", class: pool.Reset}
	errConnectTimeout = &failure{status: 504, name: "connection_timeout", class: pool.ConnectTimeout}
	errTLS            = &failure{status: 502, name: "tls_protocol_error", class: pool.Handshake}
	errProtocol       = &failure{status: 502, name: "http_protocol_error", class: pool.Malformed}
	errHeaderSize     = &failure{status: 502, name: "http_response_header_section_size", class: pool.Malformed}
	errIncomplete     = &failure{status: 502, name: "http_response_incomplete", class: pool.Reset}
	errCallFailed     = &failure{status: 502, name: "http_response_incomplete", class: pool.Reset}    // of gRPC, by a response without messages
	errCanceled       = &failure{status: 502, name: "http_response_incomplete", class: pool.Canceled} // by the backend, at a deadline
	errUnprocessed    = &failure{status: 503, name: "destination_unavailable", class: pool.Canceled, unprocessed: true}
	errReadTimeout    = &failure{status: 504, name: "http_response_timeout", class: pool.Timeout}
	errLocal          = &failure{status: 503, name: "destination_unavailable", class: pool.Canceled} // no descriptor, port or memory of this host
	errWriteTimeout   = &failure{status: 499, name: "http_response_timeout", class: pool.Canceled}   // the client takes nothing of the response
	errUpgrade        = &failure{status: 502, name: "http_upgrade_failed", class: pool.Malformed}
	errGone           = &failure{status: 499, class: pool.Canceled} // the client has left: nginx's code, for logs
	errDenied         = &failure{status: 405, name: "http_request_denied", class: pool.Canceled}
	errTooEarly       = &failure{status: 425, name: "http_request_denied", class: pool.Canceled}
	errUnauthorized   = &failure{status: 401, name: "http_request_denied", class: pool.Canceled}
	errForbidden      = &failure{status: 403, name: "http_request_denied", class: pool.Canceled}
	errRate           = &failure{status: 429, name: "http_request_denied", class: pool.Canceled}
	errBody           = &failure{status: 413, name: "http_request_error", class: pool.Canceled}
	errTarget         = &failure{status: 414, name: "http_request_error", class: pool.Canceled}
	errRequest        = &failure{status: 400, name: "http_request_error", class: pool.Canceled}
	errMisdirected    = &failure{status: 421, name: "http_request_denied", class: pool.Canceled}
	errRequestTimeout = &failure{status: 408, name: "http_request_error", class: pool.Canceled}
	errNoTunnel       = &failure{status: 501, name: "http_upgrade_failed", class: pool.Canceled} // to a backend that has none
)

// causeOf returns the failure that an error of an event is, nil if it is another error. Sides know nothing of statuses
// and of the health of backends: they report what has happened, and what follows from it is decided here alone.
func causeOf(err error) *failure {
	switch err {
	case side.ErrTerminated:
		return errTerminated
	case side.ErrIncomplete:
		return errIncomplete
	case side.ErrProtocol:
		return errProtocol
	case side.ErrHeaderSize:
		return errHeaderSize
	case side.ErrTimeout:
		return errReadTimeout
	case side.ErrSettings:
		return errConnectTimeout
	case side.ErrUnsent:
		return errUnsent
	case side.ErrUnprocessed:
		return errUnprocessed
	case side.ErrCanceled:
		return errCanceled
	case side.ErrContent:
		return errBody
	case side.ErrUpgrade:
		return errUpgrade
	}
	return nil
}

// failureOf returns the failure that an error of a connection to a backend is. Errors of the gateway's own are failures already. While
// connecting, an error that is not the system's is the TLS engine's. Later any that is not known counts as the end of the connection.
func failureOf(err error, connecting bool) *failure {
	var f *failure
	var errno unix.Errno
	switch {
	case errors.As(err, &f):
		return f
	case causeOf(err) != nil:
		return causeOf(err)
	case errors.Is(err, unix.ECONNREFUSED):
		return errRefused
	case errors.Is(err, unix.ETIMEDOUT):
		return errConnectTimeout
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH):
		return errConnect
	case connecting && errors.As(err, &errno):
		return connectFailure(errno)
	case connecting:
		return errTLS // an error of the engine
	}
	return errTerminated
}

// connectFailure returns what an error of the system is while a connection is being established. A reset in answer to a
// SYN is a refusal (RFC 9293 3.5.2). Those that are not about the backend say nothing of its health.
func connectFailure(errno unix.Errno) *failure {
	switch errno {
	case unix.ECONNRESET, unix.EPIPE, unix.ECONNABORTED:
		return errRefused
	case unix.EHOSTDOWN:
		return errConnect
	}
	return errLocal
}

// callStatus returns the status of HTTP that the failure of a gRPC call counts as, which has status 200 and says in
// grpc-status how it went; 0 is no failure of the backend. UNAVAILABLE is 503; UNKNOWN, INTERNAL and DATA_LOSS are 500.
// Unlike Envoy, DEADLINE_EXCEEDED and UNIMPLEMENTED are none: a client could have backends ejected by them.
func callStatus(fields []semantics.Field) int {
	for i := range fields {
		if fields[i].Name != "grpc-status" {
			continue
		}
		switch fields[i].Value {
		case "14":
			return 503
		case "2", "13", "15":
			return 500
		}
		return 0
	}
	return 0
}

// retryCall begins another attempt of a gRPC call whose response has only trailers (Trailers-Only), where the rule names the status
// that it counts as. A call that failed before its first message has not been committed (gRPC proposal A6). Since all
// calls are POST, the rule alone decides.
func (x *exchange) retryCall(m *semantics.Message) bool {
	if m.Status != 200 {
		return false
	}
	x.call = callStatus(m.Fields)
	return x.call != 0 && x.retryStatus(x.call, errCallFailed)
}
