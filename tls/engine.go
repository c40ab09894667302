package tls

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
)

// Errors of an Engine beside those of crypto/tls.
var (
	// ErrHandshaking is returned by Write, Seal, CloseWrite and UpdateKeys before the handshake is complete.
	ErrHandshaking = errors.New("tls: the handshake is not complete")
	// ErrWriteClosed is returned by Write and Seal after CloseWrite.
	ErrWriteClosed = errors.New("tls: write after CloseWrite")
	// ErrEngineClosed is the error of an engine after Close.
	ErrEngineClosed = errors.New("tls: engine closed")
	// ErrRenegotiation refuses a Config that permits renegotiation, which an engine cannot suspend.
	ErrRenegotiation = errors.New("tls: an engine does not renegotiate: set Config.Renegotiation to RenegotiateNever")
	// ErrKeyUpdate is returned by UpdateKeys where there are no key updates: before TLS 1.3.
	ErrKeyUpdate = errors.New("tls: key updates need TLS 1.3 and the engine's own records")
)

// EngineOptions configures an Engine. The zero value is valid.
type EngineOptions struct {
	// Output is the number of bytes of ciphertext that Write gathers before it accepts no more.
	// 0 is DefaultOutput; less than one record of full size counts as one.
	Output int
	// Local and Remote are the addresses that callbacks of the Config see in ClientHelloInfo.Conn.
	// A client without Config.ServerName and without Remote stores no sessions.
	Local, Remote net.Addr
	// AnyThread runs the handshake in a goroutine, not in a coroutine of the caller, for 5 % more CPU time. It is
	// needed where calls of one handshake come from goroutines that are locked to an OS thread and from others: the
	// runtime ends the process when a coroutine is resumed with another lock state than it was created with.
	AnyThread bool
	// Coroutines keeps coroutines between the handshakes of a loop; nil makes one for each.
	Coroutines *Coroutines
	// Signatures makes the key exchanges and signatures of the loop's handshakes in batches; nil makes each at once. Signed
	// is called from its Run when those of this handshake are made: Next is to be called then, also without input.
	Signatures *Signatures
	Signed     func()
	// StandardRecords keeps crypto/tls's record layer after the handshake, and its handshake. It allocates, and holds a
	// buffer for the largest record that was received.
	StandardRecords bool
	// StandardHandshake has crypto/tls make all handshakes, not only those that the engine does not make itself.
	StandardHandshake bool
}

// DefaultOutput is the default of EngineOptions.Output in bytes.
const DefaultOutput = 64 << 10

// EventKind is the kind of an Event.
type EventKind uint8

// Values of EventKind.
const (
	// NeedInput ends the events: all input was consumed.
	NeedInput EventKind = iota
	// HandshakeComplete is reported once. From then on data can be written.
	HandshakeComplete
	// Data is application data of one record.
	Data
	// PeerClosed is the peer's close_notify: no data follows. Writing is still possible (RFC 8446 6.1).
	// Input after it is ignored.
	PeerClosed
	// AwaitingSignature ends the events, with EngineOptions.Signatures alone: the handshake goes on after EngineOptions.Signed,
	// and consumes no input before.
	AwaitingSignature
)

// Event is a report of an Engine on its input.
type Event struct {
	// Data of an event of that kind is plaintext, valid until the next call of Next. It lies in the input
	// or in a buffer of the engine.
	Data []byte
	Kind EventKind
}

// Engine is one end of a TLS connection that a loop drives. Ciphertext of the peer goes in by Next.
// Plaintext goes in by Write, and the ciphertext to send is Pending; or Seal makes it in the caller's
// buffer. An engine is not safe for concurrent use. It has no clock: the loop bounds the time of a
// handshake and calls Close.
//
// Every call may add to Pending, also one that returns an error, which may have queued an alert.
//
// An engine that is given up before HandshakeComplete must be closed: its coroutine is not collected. A panic of a
// callback of the Config goes through the call that resumed the handshake; then too the engine must be closed.
type Engine struct {
	options EngineOptions
	role    role
	err     error // fatal, of every later call

	srv *serverHandshake     // a server's own handshake, until its flight is sent or crypto/tls takes over
	hs  *handshake           // crypto/tls's part of the handshake, then nil
	fin *finishing           // after it, until the client's Finished has come
	cs  *tls.ConnectionState // from then on
	std *standardRecords     // crypto/tls's records, nil if they are the engine's own
	own *records             // the engine's own records, nil if they are crypto/tls's

	ownHello    bool // the handshake is not crypto/tls's
	peerClosed  bool
	writeClosed bool
	out         output
}

// role is the end of the connection that an engine is.
type role uint8

const (
	server role = iota
	client
)

// NewServerEngine returns the engine of a server. Config must not be nil; it is read, never changed. It and its session
// ticket keys are looked at when the first input arrives.
func NewServerEngine(config *tls.Config, o EngineOptions) *Engine {
	return newEngine(server, config, o)
}

// NewClientEngine returns the engine of a client. Its ClientHello is Pending.
func NewClientEngine(config *tls.Config, o EngineOptions) *Engine {
	return newEngine(client, config, o)
}

func newEngine(r role, config *tls.Config, o EngineOptions) *Engine {
	if o.Output == 0 {
		o.Output = DefaultOutput
	}
	o.Output = max(o.Output, maxRecord)
	e := &Engine{role: r, options: o}
	if config.Renegotiation != tls.RenegotiateNever {
		e.err = ErrRenegotiation
		return e
	}
	if r == server {
		e.srv = &serverHandshake{e: e, user: config} // it has nothing to do before input arrives
		return e
	}
	e.hs = newHandshake(e, config)
	e.hs.step(nil) // a client that fails here fails again in the first Next, which reports it
	return e
}

// Next takes ciphertext and returns the next event and how many bytes it consumed. It is called again with
// the rest until it returns NeedInput. It borrows the input as long as the event is valid, and decrypts in
// place.
//
// An error is fatal and every later call returns the same one. Pending may hold an alert for the peer.
func (e *Engine) Next(in []byte) (ev Event, n int, err error) {
	switch {
	case e.err != nil:
		return Event{}, 0, e.err
	case e.peerClosed:
		return Event{}, len(in), nil
	case e.srv != nil:
		return e.nextServer(in)
	case e.hs != nil:
		return e.nextHandshake(in)
	case e.fin != nil:
		return e.nextFinished(in)
	case e.std != nil:
		ev, n, err = e.std.next(in)
	default:
		ev, n, err = e.own.next(in)
	}
	if err != nil {
		e.fail(err)
	}
	if ev.Kind == PeerClosed {
		e.peerClosed = true
		e.releaseInput()
	}
	return ev, n, err
}

// nextHandshake resumes the handshake with input.
func (e *Engine) nextHandshake(in []byte) (Event, int, error) {
	h := e.hs
	n := h.step(in)
	if h.awaitsSignature() {
		return Event{Kind: AwaitingSignature}, n, nil
	}
	if !h.done {
		if e.fin = h.finishing(); e.fin != nil {
			e.hs = nil
		}
		return Event{}, n, nil
	}
	if h.err != nil {
		e.fail(h.err)
		return Event{}, n, e.err
	}
	e.hs = nil
	h.transport.wait = nil
	cs := h.conn.ConnectionState()
	e.cs = &cs
	if e.own = h.takeOver(&cs); e.own == nil {
		e.std = &standardRecords{transport: h.transport, conn: h.conn}
	}
	cs.TLSUnique = bytes.Clone(cs.TLSUnique) // it lies in the tls.Conn, which would stay with it
	h.transport.keys = nil
	return Event{Kind: HandshakeComplete}, n, nil
}

// nextFinished takes input before the client's Finished.
func (e *Engine) nextFinished(in []byte) (Event, int, error) {
	ev, n, err := e.fin.next(in)
	switch {
	case err != nil:
		e.fail(err)
	case ev.Kind == HandshakeComplete:
		state := e.fin.state
		e.own, e.cs = e.fin.records, &state
		e.fin = nil
	}
	return ev, n, err
}

// fail makes err the fatal error and frees what the connection held. Pending stays.
func (e *Engine) fail(err error) {
	e.err = err
	if e.srv != nil {
		e.srv.release()
		e.srv = nil
	}
	if e.hs != nil {
		e.hs.abort()
		e.hs = nil
	}
	e.releaseInput()
}

// releaseInput frees the buffers of received records.
func (e *Engine) releaseInput() {
	if e.std != nil {
		e.std.release()
	}
	if e.fin != nil {
		e.fin.records.input.release()
		e.fin = nil
	}
	if e.own != nil {
		e.own.input.release()
	}
}

// Handshaken reports whether the handshake is complete.
func (e *Engine) Handshaken() bool { return e.cs != nil }

// ConnectionState returns what the handshake agreed on, the zero value before it is complete.
func (e *Engine) ConnectionState() tls.ConnectionState {
	if e.cs == nil {
		return tls.ConnectionState{}
	}
	return *e.cs
}

// OwnRecords reports whether the engine has the record layer, not crypto/tls. It is false before the
// handshake is complete, with EngineOptions.StandardRecords, in FIPS 140 mode, for cipher suites without
// AEAD, and for resumed sessions of TLS 1.2, whose keys crypto/tls does not log.
func (e *Engine) OwnRecords() bool { return e.own != nil }

// OwnHandshake reports whether the engine has made the handshake, not crypto/tls: a server's full or resumed one of TLS 1.3
// with X25519 or X25519MLKEM768. It is false before the flight is sent.
func (e *Engine) OwnHandshake() bool { return e.ownHello }

// Write encrypts data and adds it to Pending. It accepts fewer bytes than there are, without an error, when
// Pending reaches EngineOptions.Output: the loop sends, and writes the rest later.
func (e *Engine) Write(p []byte) (n int, err error) {
	if err := e.writable(); err != nil {
		return 0, err
	}
	for n < len(p) {
		part := p[n:]
		if size := e.recordSize(); len(part) > size {
			part = part[:size]
		}
		if len(e.out.pending())+len(part)+maxOverhead > e.options.Output {
			break
		}
		if e.own != nil {
			e.out.grow(keyUpdateSize + len(part) + maxOverhead)
			e.out.set(e.own.seal(e.own.refresh(e.out.buf), typeData, part))
		} else if _, err := e.std.conn.Write(part); err != nil {
			e.fail(err)
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// Seal appends what is Pending and then records of p to dst, as far as the capacity of dst goes, and returns
// how many bytes of p they hold. The data is encrypted in dst, without another copy; dst and p must not overlap.
// Records are of full size as long as dst has the capacity for one.
func (e *Engine) Seal(dst, p []byte) (out []byte, n int, err error) {
	dst = e.out.moveTo(dst)
	if len(p) == 0 || len(e.out.pending()) > 0 {
		return dst, 0, e.err
	}
	if err := e.writable(); err != nil {
		return dst, 0, err
	}
	for n < len(p) {
		free := cap(dst) - len(dst) - maxOverhead
		if free <= 0 {
			break
		}
		part := p[n:min(len(p), n+e.recordSize(), n+free)]
		if e.own == nil {
			if _, err := e.std.conn.Write(part); err != nil {
				e.fail(err)
				return dst, n, err
			}
			if dst = e.out.moveTo(dst); len(e.out.pending()) > 0 {
				return dst, n + len(part), nil // crypto/tls made several records of it
			}
		} else {
			if e.own.refreshDue() {
				if free < keyUpdateSize {
					break
				}
				dst = e.own.refresh(dst)
				part = part[:min(len(part), free-keyUpdateSize)]
			}
			if len(part) > 0 {
				dst = e.own.seal(dst, typeData, part)
			}
		}
		n += len(part)
	}
	return dst, n, nil
}

func (e *Engine) writable() error {
	switch {
	case e.err != nil:
		return e.err
	case e.cs == nil:
		return ErrHandshaking
	case e.writeClosed:
		return ErrWriteClosed
	}
	return nil
}

// Pending returns the ciphertext to send, handshake and alerts too. It is valid until the next call of
// another method.
func (e *Engine) Pending() []byte { return e.out.pending() }

// Advance removes the first n bytes from Pending, which were sent.
func (e *Engine) Advance(n int) { e.out.advance(n) }

// CloseWrite adds a close_notify alert to Pending. The peer can still send (RFC 8446 6.1).
func (e *Engine) CloseWrite() error {
	switch {
	case e.err != nil:
		return e.err
	case e.cs == nil:
		return ErrHandshaking
	case e.writeClosed:
		return nil
	}
	e.writeClosed = true
	if e.own != nil {
		e.own.alert(alertCloseNotify)
		return nil
	}
	return e.std.conn.CloseWrite()
}

// InputClosed reports the end of the transport's input. It returns nil after the peer's close_notify.
// Otherwise the data may be cut, and the error is io.ErrUnexpectedEOF (RFC 8446 6.1), or that of the handshake.
func (e *Engine) InputClosed() error {
	switch {
	case e.peerClosed:
		return nil
	case e.err != nil:
		return e.err
	case e.hs != nil:
		e.hs.eof = true
		e.hs.step(nil) // it does nothing where a signature is awaited: there is no one to send it to
		if e.hs.err == nil || e.hs.err == io.EOF {
			e.hs.err = io.ErrUnexpectedEOF
		}
		e.fail(e.hs.err)
	default:
		e.fail(io.ErrUnexpectedEOF)
	}
	return e.err
}

// UpdateKeys changes the keys that the engine writes with, and with request those of the peer
// (RFC 8446 4.6.3). It is never required: the engine updates them before their limit is reached.
func (e *Engine) UpdateKeys(request bool) error {
	if err := e.writable(); err != nil {
		return err
	}
	if e.own == nil || e.own.write.version != tls.VersionTLS13 {
		return ErrKeyUpdate
	}
	e.own.updateWriteKey(request)
	return nil
}

// Close frees the coroutine of an unfinished handshake and all buffers, Pending too. It sends nothing:
// CloseWrite does.
func (e *Engine) Close() {
	if e.err == nil {
		e.fail(ErrEngineClosed)
	}
	e.out.release()
}
