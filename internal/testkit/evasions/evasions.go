// Package evasions has requests of HTTP by which a client may try to get a text past inspection to a server. What a real server has
// received decides: a row is blocked where no server has its text.
//
// The rows are about rules on http.uri with "/evil" and on http.request_body with "evilbody". They may be sent to whatever has such a
// server behind it: a service whose packets are inspected, or a listener.
package evasions

import (
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Server is the kind of server that a row is for.
type Server uint8

// The servers.
const (
	Web   Server = iota // of net/http, which takes HTTP/2 without TLS too, and records paths and bodies as DecodedBody has them
	Nginx               // which records the first lines of requests
)

// Row is what a client sends, and the text that no server may have then.
type Row struct {
	Name   string
	Server Server
	Text   string
	Send   func(c *Conn)
}

// Conn is the client's connection of a row.
type Conn struct {
	*net.TCPConn
	T        testing.TB
	Upgrades bool // a server that is asked for HTTP/2 by Upgrade agrees
}

// Put sends texts, each in segments of its own, until the peer has ended the connection.
func (c *Conn) Put(texts ...string) {
	for i, text := range texts {
		if i > 0 {
			time.Sleep(3 * time.Millisecond) // the kernel may still join them, which makes the row easier
		}
		if _, err := io.WriteString(c, text); err != nil {
			return
		}
	}
}

// Urgent sends a byte of urgent data.
func (c *Conn) Urgent(b byte) {
	raw, err := c.SyscallConn()
	if err == nil {
		err = raw.Write(func(fd uintptr) bool {
			_ = unix.Sendto(int(fd), []byte{b}, unix.MSG_OOB, nil) // a peer that has ended gets none
			return true
		})
	}
	if err != nil {
		c.T.Fatal(err)
	}
	time.Sleep(3 * time.Millisecond)
}

// Answered waits for an answer of the server, and returns what there is.
func (c *Conn) Answered() string {
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	b := make([]byte, 4096)
	n, _ := c.Read(b)
	return string(b[:n])
}
