package quic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	quicgo "github.com/quic-go/quic-go"
)

// Errors of transports, connections and streams. Those that end a connection are net.ErrClosed too.
var (
	// ErrTransportClosed is returned by calls after Transport.Close or Shutdown, or after the packet
	// conn has failed.
	ErrTransportClosed = fmt.Errorf("quic: transport closed: %w", net.ErrClosed)
	// ErrListenerClosed is returned by Accept after Close or Shutdown.
	ErrListenerClosed = fmt.Errorf("quic: listener closed: %w", net.ErrClosed)
	// ErrListening is returned by Listen on a transport that has a listener.
	ErrListening = errors.New("quic: transport has a listener")
	// ErrStreamClosed is returned by writes after Close of the stream.
	ErrStreamClosed = fmt.Errorf("quic: stream closed: %w", net.ErrClosed)
	// ErrWouldBlock is returned by TryWrite.
	ErrWouldBlock = errors.New("quic: write would block")
	// ErrStreamLimit is returned by TryOpenStream and TryOpenUniStream while the peer permits no more
	// streams (RFC 9000 4.6).
	ErrStreamLimit = errors.New("quic: the peer permits no more streams")
	// ErrStatelessReset ends a connection whose peer has lost its state (RFC 9000 10.3).
	ErrStatelessReset = fmt.Errorf("quic: stateless reset by the peer: %w", net.ErrClosed)
	// ErrIdleTimeout ends a connection from whose peer nothing came for the idle timeout
	// (RFC 9000 10.1). It is a net.Error with Timeout.
	ErrIdleTimeout error = &timeoutError{"quic: no packet from the peer within the idle timeout"}
	// ErrHandshakeTimeout ends a handshake that takes too long. It is a net.Error with Timeout.
	ErrHandshakeTimeout error = &timeoutError{"quic: handshake timed out"}
	// Err0RTTRejected is returned by streams of early data that the server has refused. See
	// Conn.Restart.
	Err0RTTRejected = errors.New("quic: the server rejected early data")
	// ErrNoDatagrams is returned by datagram calls on a connection for which an end did not enable
	// datagrams.
	ErrNoDatagrams = errors.New("quic: datagrams are not enabled at both ends")
	// ErrPathClosed is returned by calls on a closed Path.
	ErrPathClosed = errors.New("quic: path closed")
	// ErrPathNotValidated is returned by Path.Switch before Probe has succeeded (RFC 9000 9.1).
	ErrPathNotValidated = errors.New("quic: path not validated")
	// ErrMigration is returned by AddPath where the connection cannot migrate: at the server
	// (RFC 9000 9), or if the server disabled it.
	ErrMigration = errors.New("quic: the connection cannot migrate")
)

// timeoutError is the end of a connection by time.
type timeoutError struct{ text string }

func (e *timeoutError) Error() string { return e.text }
func (*timeoutError) Timeout() bool   { return true }
func (*timeoutError) Temporary() bool { return false }
func (*timeoutError) Unwrap() error   { return net.ErrClosed }

// ApplicationError is the end of a connection by CloseWithError of an end.
type ApplicationError struct {
	Code   uint64 // defined by the application protocol
	Reason string
	Remote bool // the peer closed
}

func (e *ApplicationError) Error() string {
	return fmt.Sprintf("quic: connection closed by the %s application: code %#x%s", role(e.Remote), e.Code, reason(e.Reason))
}

// Unwrap returns net.ErrClosed.
func (*ApplicationError) Unwrap() error { return net.ErrClosed }

// Is compares the code and which end closed.
func (e *ApplicationError) Is(target error) bool {
	t, ok := target.(*ApplicationError)
	return ok && e.Code == t.Code && e.Remote == t.Remote
}

// TransportError is the end of a connection by a violation of the protocol or a failed handshake
// (RFC 9000 11.1).
type TransportError struct {
	Code      ErrorCode
	FrameType uint64 // that caused it, 0 is unknown
	Reason    string
	Remote    bool // the peer detected it
	cause     error
}

func (e *TransportError) Error() string {
	text := e.Reason
	if text == "" && e.cause != nil {
		text = e.cause.Error()
	}
	return fmt.Sprintf("quic: connection closed by the %s end: %v%s", role(e.Remote), e.Code, reason(text))
}

// Unwrap returns net.ErrClosed and the cause, such as a certificate error.
func (e *TransportError) Unwrap() []error {
	if e.cause == nil {
		return []error{net.ErrClosed}
	}
	return []error{net.ErrClosed, e.cause}
}

// Is compares the code and which end detected the error.
func (e *TransportError) Is(target error) bool {
	t, ok := target.(*TransportError)
	return ok && e.Code == t.Code && e.Remote == t.Remote
}

// StreamError is the end of a stream by CancelRead or CancelWrite of an end (RFC 9000 19.4, 19.5).
type StreamError struct {
	Stream StreamID
	Code   uint64 // defined by the application protocol
	Remote bool   // the peer canceled
}

func (e *StreamError) Error() string {
	return fmt.Sprintf("quic: stream %d canceled by the %s end: code %#x", e.Stream, role(e.Remote), e.Code)
}

// Is compares all fields.
func (e *StreamError) Is(target error) bool {
	t, ok := target.(*StreamError)
	return ok && *e == *t
}

// VersionError is the end of a handshake because the ends have no version in common (RFC 9000 6).
type VersionError struct {
	Local, Remote []Version
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("quic: no version in common: local %v, remote %v", e.Local, e.Remote)
}

// Unwrap returns net.ErrClosed.
func (*VersionError) Unwrap() error { return net.ErrClosed }

// DatagramTooLargeError is returned by SendDatagram.
type DatagramTooLargeError struct {
	Max int // bytes that fit at present
}

func (e *DatagramTooLargeError) Error() string {
	return fmt.Sprintf("quic: datagram too large: at most %d bytes fit", e.Max)
}

func role(remote bool) string {
	if remote {
		return "remote"
	}
	return "local"
}

func reason(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

// sentinels are errors of quic-go without fields, and ours.
var sentinels = []struct{ theirs, ours error }{
	{quicgo.ErrTransportClosed, ErrTransportClosed},
	{quicgo.ErrServerClosed, ErrListenerClosed},
	{quicgo.ErrStreamClosed, ErrStreamClosed},
	{quicgo.ErrWouldBlock, ErrWouldBlock},
	{quicgo.Err0RTTRejected, Err0RTTRejected},
	{quicgo.ErrPathClosed, ErrPathClosed},
	{quicgo.ErrPathNotValidated, ErrPathNotValidated},
	{os.ErrDeadlineExceeded, os.ErrDeadlineExceeded},
}

// convert returns our form of an error of quic-go. Errors of contexts and packet conns pass.
func convert(err error) error {
	if err == nil {
		return nil
	}
	if e := convertTyped(err); e != nil {
		return e
	}
	for _, s := range sentinels {
		if errors.Is(err, s.theirs) {
			return s.ours
		}
	}
	return err
}

// convertDial is convert for the handshake, in which quic-go has two timeouts.
func convertDial(err error) error {
	if err = convert(err); err == ErrIdleTimeout { //nolint:errorlint // convert returns it as it is
		return ErrHandshakeTimeout
	}
	return err
}

func convertTyped(err error) error {
	switch e := err.(type) { //nolint:errorlint // quic-go returns these as they are
	case *quicgo.ApplicationError:
		return &ApplicationError{Code: uint64(e.ErrorCode), Reason: e.ErrorMessage, Remote: e.Remote}
	case *quicgo.TransportError:
		return convertTransport(e)
	case *quicgo.StreamError:
		return &StreamError{Stream: StreamID(e.StreamID), Code: uint64(e.ErrorCode), Remote: e.Remote}
	case *quicgo.VersionNegotiationError:
		return &VersionError{Local: convertVersions(e.Ours), Remote: convertVersions(e.Theirs)}
	case *quicgo.DatagramTooLargeError:
		return &DatagramTooLargeError{Max: int(e.MaxDatagramPayloadSize)}
	case *quicgo.StatelessResetError:
		return ErrStatelessReset
	case *quicgo.IdleTimeoutError:
		return ErrIdleTimeout
	case *quicgo.HandshakeTimeoutError:
		return ErrHandshakeTimeout
	case *quicgo.StreamLimitReachedError, quicgo.StreamLimitReachedError:
		return ErrStreamLimit
	}
	return nil
}

func convertTransport(e *quicgo.TransportError) error {
	t := &TransportError{Code: ErrorCode(e.ErrorCode), FrameType: e.FrameType, Reason: e.ErrorMessage, Remote: e.Remote}
	for _, cause := range e.Unwrap() {
		if cause != nil && cause != net.ErrClosed { //nolint:errorlint // the list has it as it is
			t.cause = cause
		}
	}
	return t
}

func convertVersions(vs []quicgo.Version) (out []Version) {
	for _, v := range vs {
		out = append(out, Version(v))
	}
	return out
}

// convertContext returns a context that ends with ctx, with our form of its cause.
func convertContext(ctx context.Context) context.Context {
	ours, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() { cancel(convert(context.Cause(ctx))) })
	return ours
}
