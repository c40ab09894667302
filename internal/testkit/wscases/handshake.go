package wscases

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// RunServer plays a case against an echoing server at a TCP address.
func RunServer(address string, c Case, patience time.Duration) error {
	conn, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	request := "GET / HTTP/1.1\r\nHost: " + address + "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	want := ""
	if c.Deflate != nil {
		request += "Sec-WebSocket-Extensions: " + c.Deflate.Offer + "\r\n"
		want = c.Deflate.Response
	}
	if _, err := io.WriteString(conn, request+"\r\n"); err != nil {
		return err
	}
	br := bufio.NewReader(conn)
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		return err
	}
	if resp.StatusCode != 101 || resp.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		return fmt.Errorf("%s %v", resp.Status, resp.Header)
	}
	if got := resp.Header.Get("Sec-WebSocket-Extensions"); !slices.Equal(sorted(got), sorted(want)) {
		return fmt.Errorf("%w: the server answers %q, want %q", ErrNotAgreed, got, want)
	}
	return Run(buffered{conn, br}, c, false, patience)
}

// ErrNotAgreed reports that an implementation does not negotiate the parameters of a case.
var ErrNotAgreed = errors.New("other parameters")

// sorted returns the parts of an extension in an order that does not depend on theirs.
func sorted(extension string) []string {
	parts := strings.Split(strings.ReplaceAll(extension, " ", ""), ";")
	slices.Sort(parts)
	return parts
}

// RunClient plays a case against an echoing client, which dial starts with the address to connect to.
func RunClient(c Case, patience time.Duration, dial func(address string)) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	ended := make(chan struct{})
	go func() {
		defer func() { ended <- struct{}{} }()
		dial(l.Addr().String())
	}()
	_ = l.(*net.TCPListener).SetDeadline(time.Now().Add(patience))
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	err = serveClient(conn, c, patience)
	_ = conn.Close()
	<-ended
	return err
}

func serveClient(conn net.Conn, c Case, patience time.Duration) error {
	_ = conn.SetDeadline(time.Now().Add(patience))
	br := bufio.NewReader(conn)
	r, err := http.ReadRequest(br)
	if err != nil {
		return err
	}
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	response := "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Accept: " + base64.StdEncoding.EncodeToString(sum[:]) + "\r\n"
	if c.Deflate != nil {
		response += "Sec-WebSocket-Extensions: " + c.Deflate.Response + "\r\n"
	}
	if _, err := io.WriteString(conn, response+"\r\n"); err != nil {
		return err
	}
	return Run(buffered{conn, br}, c, true, patience)
}

// buffered is a connection from which more than the handshake may have been read.
type buffered struct {
	net.Conn
	r *bufio.Reader
}

func (b buffered) Read(p []byte) (int, error) { return b.r.Read(p) }
