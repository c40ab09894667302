package role

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	coder "github.com/coder/websocket"
	"github.com/gobwas/ws"

	"github.com/millrace/millrace/websocket"
)

// openWebSocket plays the server of WebSocket echoes of o.size bytes: what a message costs behind the socket. The client
// is memory.
func openWebSocket(o roleOptions) (roleWork, error) {
	open, ok := map[string]func(*webSocketPeer) (echo func() error, err error){
		"machine": echoByMachine, "conn": echoByConn, "coder": echoByCoder, "gobwas": echoByGobwas,
	}[o.as]
	if !ok {
		return roleWork{}, fmt.Errorf("no contestant %q", o.as)
	}
	peer := newWebSocketPeer(o.size)
	echo, err := open(peer)
	if err != nil {
		return roleWork{}, err
	}
	step := func() error {
		for range webSocketBurst {
			if err := echo(); err != nil {
				return err
			}
		}
		return nil
	}
	if err := step(); err != nil {
		return roleWork{}, err
	}
	allocs := testing.AllocsPerRun(10, func() { _ = step() }) / webSocketBurst
	return roleWork{
		version: runtime.Version(),
		step:    step,
		counts: func() (map[string]uint64, error) {
			n := peer.echoed.Load()
			return map[string]uint64{"messages": n, "bytes": n * uint64(o.size), "allocs": uint64(allocs)}, nil
		},
	}, nil
}

// webSocketBurst is the number of messages that a step has, and how many frames with different masking keys there are.
const webSocketBurst = 64

// webSocketPeer is a client that sends one masked frame after another and checks that each comes back. It is the
// net.Conn of the server. A Read returns bytes of one frame, as of a client that waits for its echo.
type webSocketPeer struct {
	frames [][]byte
	next   int    // frame
	left   []byte // of the frame that is read

	want   []byte // the frame of a server
	at     int    // so much of it has come
	echoed atomic.Uint64
}

func newWebSocketPeer(size int) *webSocketPeer {
	p := &webSocketPeer{}
	payload := make([]byte, size)
	for i := range payload {
		payload[i] = byte(i * 7)
	}
	p.want = append(frameHeader(size, 0), payload...)
	for i := range webSocketBurst {
		key := binary.BigEndian.AppendUint32(nil, uint32(i+1)*0x9e3779b1)
		frame := append(frameHeader(size, 0x80), key...)
		for j, x := range payload {
			frame = append(frame, x^key[j%4])
		}
		p.frames = append(p.frames, frame)
	}
	return p
}

// frameHeader returns the header of a final binary frame (RFC 6455 5.2), without a masking key.
func frameHeader(size int, masked byte) []byte {
	switch {
	case size < 126:
		return []byte{0x82, masked | byte(size)}
	case size < 1<<16:
		return binary.BigEndian.AppendUint16([]byte{0x82, masked | 126}, uint16(size))
	}
	return binary.BigEndian.AppendUint64([]byte{0x82, masked | 127}, uint64(size))
}

func (p *webSocketPeer) Read(b []byte) (int, error) {
	if len(p.left) == 0 {
		p.left = p.frames[p.next]
		p.next = (p.next + 1) % len(p.frames)
	}
	n := copy(b, p.left)
	p.left = p.left[n:]
	return n, nil
}

var errOtherEcho = errors.New("an echo differs")

func (p *webSocketPeer) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		n := min(len(rest), len(p.want)-p.at)
		if !bytes.Equal(rest[:n], p.want[p.at:p.at+n]) {
			return 0, errOtherEcho
		}
		rest = rest[n:]
		if p.at += n; p.at == len(p.want) {
			p.at = 0
			p.echoed.Add(1)
		}
	}
	return len(b), nil
}

func (p *webSocketPeer) Close() error                     { return nil }
func (p *webSocketPeer) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (p *webSocketPeer) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (p *webSocketPeer) SetDeadline(time.Time) error      { return nil }
func (p *webSocketPeer) SetReadDeadline(time.Time) error  { return nil }
func (p *webSocketPeer) SetWriteDeadline(time.Time) error { return nil }

// echoByMachine is an event loop: what is read goes into the machine, and its answer is written.
func echoByMachine(p *webSocketPeer) (func() error, error) {
	m := websocket.NewMachine(websocket.Server, websocket.MachineOptions{})
	in, out := make([]byte, 16<<10), []byte(nil)
	var message []byte
	return func() error {
		for {
			n, err := p.Read(in)
			if err != nil {
				return err
			}
			for rest := in[:n]; ; {
				ev, used, err := m.Next(rest)
				if err != nil {
					return err
				}
				rest = rest[used:]
				if ev.Kind == websocket.NeedInput {
					break
				}
				if ev.Kind != websocket.Message {
					return fmt.Errorf("event %v", ev.Kind)
				}
				whole := ev.Payload
				if !ev.First || !ev.Last {
					message = append(message, ev.Payload...)
					whole = message
				}
				if !ev.Last {
					continue
				}
				if out, err = m.AppendMessage(out[:0], websocket.Binary, whole); err != nil {
					return err
				}
				message = message[:0]
				_, err = p.Write(out)
				return err
			}
		}
	}, nil
}

// echoByConn is the library with a buffer of the caller's.
func echoByConn(p *webSocketPeer) (func() error, error) {
	c := websocket.NewConn(p, websocket.Server, websocket.ConnOptions{})
	buf := make([]byte, 0, len(p.want))
	return func() error {
		op, message, err := c.ReadMessage(buf)
		if err != nil {
			return err
		}
		return c.WriteMessage(op, message)
	}, nil
}

// echoByCoder is coder/websocket as its documentation uses it.
func echoByCoder(p *webSocketPeer) (func() error, error) {
	ctx := context.Background()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server/", http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Header = http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"},
		"Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="},
	}
	c, err := coder.Accept(&hijacked{conn: p, header: http.Header{}}, r, nil)
	if err != nil {
		return nil, err
	}
	c.SetReadLimit(-1)
	return func() error {
		kind, message, err := c.Read(ctx)
		if err != nil {
			return err
		}
		return c.Write(ctx, kind, message)
	}, nil
}

// hijacked is the http.ResponseWriter of a handshake whose answer nobody reads.
type hijacked struct {
	conn   net.Conn
	header http.Header
}

func (h *hijacked) Header() http.Header         { return h.header }
func (h *hijacked) Write(b []byte) (int, error) { return len(b), nil }
func (h *hijacked) WriteHeader(int)             {}
func (h *hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.conn, bufio.NewReadWriter(bufio.NewReader(h.conn), bufio.NewWriter(h.conn)), nil
}

// echoByGobwas is gobwas/ws by frames, the cheapest of its ways: a buffered reader, one buffer for messages, and one write.
func echoByGobwas(p *webSocketPeer) (func() error, error) {
	r := bufio.NewReaderSize(p, 16<<10)
	message := make([]byte, len(p.want))
	var out bytes.Buffer
	return func() error {
		h, err := ws.ReadHeader(r)
		if err != nil {
			return err
		}
		if err := ws.CheckHeader(h, ws.StateServerSide); err != nil {
			return err
		}
		message := message[:h.Length]
		if _, err := io.ReadFull(r, message); err != nil {
			return err
		}
		ws.Cipher(message, h.Mask, 0)
		out.Reset()
		if err := ws.WriteHeader(&out, ws.Header{Fin: true, OpCode: h.OpCode, Length: h.Length}); err != nil {
			return err
		}
		out.Write(message)
		_, err = p.Write(out.Bytes())
		return err
	}, nil
}
