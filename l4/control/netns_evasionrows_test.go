package control_test

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/testkit/evasions"
)

const (
	evasionText  = "198.18.1.1:7000"
	evasionWeb   = "198.18.1.1:80"
	evasionNginx = "198.18.1.1:90"
	evasionTLS   = "198.18.1.1:443"
	evasionSSL   = "198.18.1.1:444"
)

// hello returns the records of a ClientHello with a server name.
func hello(name string) []byte {
	a, b := net.Pipe()
	go tls.Client(a, &tls.Config{ServerName: name, InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}).Handshake()
	defer a.Close()
	b.SetReadDeadline(time.Now().Add(5 * time.Second))
	p := make([]byte, 4096)
	n, _ := b.Read(p)
	return p[:n]
}

// textEvasions are those of the stream, and of TLS.
func textEvasions() (rows []evasion) {
	rows = []evasion{
		{name: "plain text", at: evasionText, text: "one attack at dawn", send: func(c *evasionConn) { c.Put("one attack at dawn\n") }},
		{name: "single letters", at: evasionText, text: "two attack at dawn", send: func(c *evasionConn) { c.Put(evasions.Letters("two attack at dawn\n", 1)...) }},
		{name: "an urgent byte", at: evasionText, text: "three attack at dawn", send: func(c *evasionConn) {
			c.Put("three attack a")
			c.Urgent('X')
			c.Put("t dawn\n")
		}},
		{name: "two urgent bytes", at: evasionText, text: "four attack at dawn", send: func(c *evasionConn) {
			c.Put("four attack a")
			c.Urgent('X')
			c.Put("t ")
			c.Urgent('Y')
			c.Put("dawn\n")
		}},
	}
	for name, edit := range map[string]func(b []byte) []byte{
		"plain":               func(b []byte) []byte { return b },
		"version 3.153":       func(b []byte) []byte { b[2] = 0x99; return b },
		"version 9.9":         func(b []byte) []byte { b[1], b[2] = 9, 9; return b },
		"an empty record":     func(b []byte) []byte { return append([]byte{22, 3, 1, 0, 0}, b...) },
		"two empty records":   func(b []byte) []byte { return append([]byte{22, 3, 1, 0, 0, 22, 3, 1, 0, 0}, b...) },
		"an alert before it":  func(b []byte) []byte { return append([]byte{21, 3, 1, 0, 2, 1, 90}, b...) },
		"records of one byte": func(b []byte) []byte { return recordsOf(b, 1) },
		"records of 40 bytes": func(b []byte) []byte { return recordsOf(b, 40) },
		"a change before it":  func(b []byte) []byte { return append([]byte{20, 3, 3, 0, 1, 1}, b...) },
	} {
		for i, at := range []string{evasionTLS, evasionSSL} {
			server := fmt.Sprintf("n%d%s.evil.test", i, strings.NewReplacer(" ", "-", ".", "-").Replace(name))
			rows = append(rows, evasion{name: "TLS: " + name + " to " + at, at: at, text: server, send: func(c *evasionConn) { c.Put(string(edit(hello(server)))) }})
		}
	}
	return append(rows, evasion{name: "TLS: an urgent byte", at: evasionTLS, text: "urgent.evil.test", send: func(c *evasionConn) {
		b := hello("urgent.evil.test")
		at := bytes.Index(b, []byte("evil"))
		c.Put(string(b[:at+2]))
		c.Urgent('X')
		c.Put(string(b[at+2:]))
	}})
}

// recordsOf cuts the message of a record into records of a size.
func recordsOf(b []byte, size int) (out []byte) {
	for _, part := range evasions.Letters(string(b[5:]), size) {
		out = append(binary.BigEndian.AppendUint16(append(out, b[:3]...), uint16(len(part))), part...)
	}
	return out
}

// httpEvasions are those of HTTP.
func httpEvasions() (rows []evasion) {
	for _, r := range evasions.HTTP() {
		at := evasionWeb
		if r.Server == evasions.Nginx {
			at = evasionNginx
		}
		rows = append(rows, evasion{name: r.Name, at: at, text: r.Text, send: func(c *evasionConn) { r.Send(c.Conn) }})
	}
	return rows
}
