package stackpair

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"testing"
	"time"
)

// Fragments meet on the loop of their addresses, and the datagram goes on to the loop of its ports, which has to tell the socket
// at once.
func TestFragmentedDatagramsReachTheirLoop(t *testing.T) {
	for _, loops := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(loops, " loops"), func(t *testing.T) {
			p, err := New(loops)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			}()
			server, err := p.B.ListenPacket("udp", AddrB+":7000")
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			go echo(server)
			for i := range 24 {
				exchange(t, p, 1000+i*600, byte(i))
			}
		})
	}
}

func echo(c net.PacketConn) {
	b := make([]byte, 1<<16)
	for {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		if _, err := c.WriteTo(b[:n], from); err != nil {
			return
		}
	}
}

func exchange(t *testing.T, p *Pair, size int, fill byte) {
	t.Helper()
	c, err := p.A.Dial("udp", AddrB+":7000")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sent, got := bytes.Repeat([]byte{fill}, size), make([]byte, 1<<16)
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(sent); err != nil {
		t.Fatal(err)
	}
	n, err := c.Read(got)
	if err != nil && err != io.EOF || !bytes.Equal(got[:n], sent) {
		t.Fatalf("%d bytes from %v: %d, %v", size, c.LocalAddr(), n, err)
	}
}
