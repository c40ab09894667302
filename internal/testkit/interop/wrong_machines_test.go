package interop

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/semantics"
)

// machineLanes are the simplest proxy of package http1: what is left when nothing but the machines refuses.
func machineLanes(t *testing.T) (all []*lane) {
	for range lanes {
		backend := newRecorder(t, "tcp", "127.0.0.1:0")
		front, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = front.Close() })
		go func() {
			for {
				c, err := front.Accept()
				if err != nil {
					return
				}
				go relayHTTP1(c, backend.listener.Addr().String())
			}
		}()
		all = append(all, &lane{network: "tcp", http1: front.Addr().String(), backend: backend})
	}
	return all
}

// relayHTTP1 passes the requests of a connection on, each over a connection of its own.
func relayHTTP1(c net.Conn, upstream string) {
	defer c.Close()
	m := http1.NewMachine(http1.RoleServer, http1.Options{})
	var back net.Conn
	var client *http1.Machine
	var held []byte
	buf := make([]byte, 16<<10)
	for {
		n, err := c.Read(buf)
		in := append(held, buf[:n]...)
		for {
			ev, used, failure := m.Input(in, err != nil)
			in = in[used:]
			var out []byte
			switch {
			case failure != nil:
				refuse(c, failure)
				if back != nil {
					_ = back.Close()
				}
				return
			case ev.Kind == http1.Headers:
				client = http1.NewMachine(http1.RoleClient, http1.Options{})
				if back, failure = net.Dial("tcp", upstream); failure != nil {
					return
				}
				out, failure = client.AppendRequest(nil, &m.Message().Message, m.Message().Body == http1.NoBody)
			case ev.Kind == http1.Data:
				out, failure = client.AppendData(nil, ev.Payload)
			case ev.Kind == http1.End:
				out, failure = client.AppendEnd(nil, m.Trailers())
			}
			if failure == nil && len(out) > 0 {
				_, failure = back.Write(out)
			}
			if failure == nil && ev.Kind == http1.End {
				failure = relayResponse(c, m, back, client)
				_ = back.Close()
				if !m.KeepAlive() {
					return
				}
			}
			if failure != nil {
				return
			}
			if ev.Kind == http1.NeedInput {
				break
			}
		}
		if err != nil {
			return
		}
		held = bytes.Clone(in)
	}
}

// refuse answers what a machine refuses, and waits for the client to close.
func refuse(c net.Conn, failure error) {
	var refused *http1.Error
	if errors.As(failure, &refused) {
		m := http1.NewMachine(http1.RoleServer, http1.Options{})
		_, _, _ = m.Input([]byte("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"), false)
		out, _ := m.AppendResponse(nil, &semantics.Message{Status: refused.Status, ContentLength: 0}, true)
		_, _ = c.Write(out)
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c)
	}
}

// relayResponse passes a response with content of a known length back.
func relayResponse(c net.Conn, m *http1.Machine, back net.Conn, client *http1.Machine) error {
	buf := make([]byte, 16<<10)
	for {
		n, err := back.Read(buf)
		if err != nil {
			return err
		}
		in, out := buf[:n], []byte(nil)
		for {
			ev, used, err := client.Input(in, false)
			in = in[used:]
			switch ev.Kind {
			case http1.Headers:
				out, err = m.AppendResponse(out, &client.Message().Message, client.Message().Body == http1.NoBody)
			case http1.Data:
				out, err = m.AppendData(out, ev.Payload)
			case http1.End:
				if out, err = m.AppendEnd(out, nil); err == nil {
					_, err = c.Write(out)
					return err
				}
			}
			if err != nil {
				return err
			}
			if ev.Kind == http1.NeedInput {
				break
			}
		}
		if _, err := c.Write(out); err != nil {
			return err
		}
	}
}
