package wscases

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Run plays the case as the peer of an implementation, whose role is that of a client or a server, over a
// connection with a complete handshake, and returns what was wrong. The implementation has patience to
// end the connection.
func Run(conn net.Conn, c Case, peerIsClient bool, patience time.Duration) error {
	_ = conn.SetDeadline(time.Now().Add(patience))
	sent := make(chan struct{})
	go func() {
		defer func() { sent <- struct{}{} }()
		c.write(conn, !peerIsClient)
	}()
	got, code, err := c.read(bufio.NewReader(conn), peerIsClient)
	_ = conn.Close()
	<-sent
	if err != nil {
		return err
	}
	return c.compare(got, code)
}

// write sends the frames, and a Close frame where the implementation has no reason to close. It stops when
// the implementation has closed.
func (c Case) write(conn net.Conn, client bool) {
	var d *deflater
	if c.Deflate != nil {
		d = newDeflater(!c.Deflate.ServerNoTakeover, c.Deflate.ServerBits)
		if client {
			d = newDeflater(!c.Deflate.ClientNoTakeover, c.Deflate.ClientBits)
		}
	}
	var b []byte
	for _, f := range c.send {
		if f.rsv == compress {
			f.rsv, f.payload = 4, d.compress(f.payload)
		}
		b = f.encode(b, client)
	}
	if c.closes == nil {
		b = message(opClose, "\x03\xe8").encode(b, client)
	}
	for len(b) > 0 {
		n := len(b)
		if c.chop > 0 {
			n = min(n, c.chop)
		}
		if _, err := conn.Write(b[:n]); err != nil {
			return
		}
		b = b[n:]
	}
}

// read collects messages and pongs until the implementation closes. code is that of its Close frame, 1005
// for none in it, 1006 for no Close frame.
func (c Case) read(r io.Reader, fromClient bool) (got []frame, code int, err error) {
	open, zipped := -1, false
	var history []byte
	for {
		f, err := readFrame(r, fromClient)
		var timeout net.Error
		switch {
		case errors.As(err, &timeout) && timeout.Timeout():
			return got, 0, fmt.Errorf("still open; received %d frames", len(got))
		case errors.Is(err, io.EOF) || errors.As(err, new(*net.OpError)):
			return got, 1006, nil
		case err != nil:
			return got, 0, err
		}
		switch {
		case f.op == opClose && len(f.payload) >= 2:
			return got, int(binary.BigEndian.Uint16([]byte(f.payload))), nil
		case f.op == opClose:
			return got, 1005, nil
		case f.op == pong:
			got = append(got, f)
			continue
		case f.op == cont && open < 0, f.op > bin, f.op != cont && open >= 0, f.op == cont && f.rsv != 0, f.rsv&3 != 0:
			return got, 0, fmt.Errorf("frame with opcode %d, reserved bits %d, inside of a message: %v", f.op, f.rsv, open >= 0)
		case f.op != cont:
			got, open, zipped = append(got, frame{op: f.op}), len(got), f.rsv == 4
		}
		got[open].payload += f.payload
		if f.more {
			continue
		}
		if zipped {
			if history, err = c.inflate(history, &got[open], fromClient); err != nil {
				return got, 0, err
			}
		}
		open = -1
	}
}

// inflate decompresses a message and returns the window for the next.
func (c Case) inflate(history []byte, m *frame, fromClient bool) ([]byte, error) {
	if c.Deflate == nil {
		return nil, errors.New("compressed message without an agreement")
	}
	noTakeover, bits := c.Deflate.ServerNoTakeover, c.Deflate.ServerBits
	if fromClient {
		noTakeover, bits = c.Deflate.ClientNoTakeover, c.Deflate.ClientBits
	}
	if noTakeover {
		history = nil
	}
	if n := len(history) - 1<<15; n > 0 {
		history = history[n:]
	}
	all, err := Inflate(history, []byte(m.payload+"\x00\x00\xff\xff"), 1<<bits)
	if err != nil {
		return nil, fmt.Errorf("message of %d compressed bytes: %w, or beyond the window", len(m.payload), err)
	}
	m.payload = string(all[len(history):])
	return all, nil
}

// compare returns how what was received differs from what is wanted.
func (c Case) compare(got []frame, code int) error {
	closes := c.closes
	if closes == nil {
		closes = []int{1000}
	}
	ok := false
	for _, n := range closes {
		ok = ok || n == code
	}
	if !ok {
		return fmt.Errorf("closed with %d, want one of %d", code, closes)
	}
	if len(got) != len(c.want) {
		return fmt.Errorf("received %d messages and pongs, want %d", len(got), len(c.want))
	}
	for i, f := range got {
		w := c.want[i]
		if f.op != w.op || f.payload != w.payload {
			return fmt.Errorf("answer %d has opcode %d and %d bytes %.40q, want opcode %d and %d bytes %.40q", i, f.op, len(f.payload), f.payload, w.op, len(w.payload), w.payload)
		}
	}
	return nil
}
