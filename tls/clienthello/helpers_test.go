package clienthello

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"
)

// stream returns the first bytes that a client of crypto/tls sends.
func stream(t testing.TB, cfg *tls.Config) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		_ = client.SetDeadline(time.Now().Add(time.Minute))
		_ = tls.Client(client, cfg).Handshake()
		_ = client.Close()
	}()
	_ = server.SetDeadline(time.Now().Add(time.Minute))
	b := make([]byte, recordHeader)
	if _, err := io.ReadFull(server, b); err != nil {
		t.Fatal(err)
	}
	b = append(b, make([]byte, binary.BigEndian.Uint16(b[3:]))...)
	if _, err := io.ReadFull(server, b[recordHeader:]); err != nil {
		t.Fatal(err)
	}
	return b
}

// chromeConfig makes hellos of about the shape of a browser's.
var chromeConfig = &tls.Config{ServerName: "www.example.com", NextProtos: []string{"h2", "http/1.1"}, InsecureSkipVerify: true}

// records cuts a message into records with payloads of at most size bytes.
func records(message []byte, size int) (b []byte) {
	for len(message) > 0 {
		n := min(size, len(message))
		b = append(b, recordHandshake, 3, 1)
		b = binary.BigEndian.AppendUint16(b, uint16(n))
		b = append(b, message[:n]...)
		message = message[n:]
	}
	return b
}

// ext returns an extension.
func ext(typ uint16, data ...byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, typ)
	b = binary.BigEndian.AppendUint16(b, uint16(len(data)))
	return append(b, data...)
}

// message returns a ClientHello with the suites and extensions given.
func message(suites []uint16, extensions ...[]byte) []byte {
	b := []byte{3, 3}
	b = append(b, make([]byte, 32)...) // random
	b = append(b, 0)                   // session ID
	b = binary.BigEndian.AppendUint16(b, uint16(2*len(suites)))
	for _, s := range suites {
		b = binary.BigEndian.AppendUint16(b, s)
	}
	b = append(b, 1, 0)
	var all []byte
	for _, e := range extensions {
		all = append(all, e...)
	}
	if extensions != nil {
		b = binary.BigEndian.AppendUint16(b, uint16(len(all)))
		b = append(b, all...)
	}
	n := len(b)
	return append([]byte{1, byte(n >> 16), byte(n >> 8), byte(n)}, b...)
}

// name returns the extension server_name.
func name(host string) []byte {
	n := len(host)
	return ext(extServerName, append([]byte{byte((n + 3) >> 8), byte(n + 3), 0, byte(n >> 8), byte(n)}, host...)...)
}
