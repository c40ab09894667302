package quic_test

import (
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// relay is a NAT: it forwards between the client that sends to front and a server, and can change the
// address from which it does.
type relay struct {
	front  *net.UDPConn
	server net.Addr

	mu       sync.Mutex
	holding  bool // what the client sends waits
	held     [][]byte
	client   net.Addr
	back     *net.UDPConn
	recorded [][]byte                           // from the client
	drop     func(b []byte, toServer bool) bool // nil is nothing
	choose   func(b []byte) net.Addr            // nil is server
}

func newRelay(t *testing.T, server net.Addr) *relay {
	r := &relay{front: udpConn(t), server: server}
	r.rebind(t)
	go r.forward()
	t.Cleanup(func() {
		_ = r.front.Close()
		_ = r.back.Close()
	})
	return r
}

func (r *relay) addr() net.Addr { return r.front.LocalAddr() }

// rebind takes another address toward the server, as a NAT does whose mapping has expired: what is
// sent to the old one is lost.
func (r *relay) rebind(t *testing.T) {
	back := udpConn(t)
	r.mu.Lock()
	old := r.back
	r.back = back
	r.mu.Unlock()
	if old != nil {
		_ = old.Close()
	}
	go r.returns(back)
}

func (r *relay) forward() {
	buf := make([]byte, 65536)
	for {
		n, from, err := r.front.ReadFrom(buf)
		if err != nil {
			return
		}
		r.mu.Lock()
		r.client = from
		to := r.server
		if r.choose != nil {
			to = r.choose(buf[:n])
		}
		r.recorded = append(r.recorded, slices.Clone(buf[:n]))
		back, dropped := r.back, r.drop != nil && r.drop(buf[:n], true)
		if r.holding {
			r.held = append(r.held, slices.Clone(buf[:n]))
			dropped = true
		}
		r.mu.Unlock()
		if !dropped {
			_, _ = back.WriteTo(buf[:n], to)
		}
	}
}

func (r *relay) returns(back *net.UDPConn) {
	buf := make([]byte, 65536)
	for {
		n, _, err := back.ReadFrom(buf)
		if err != nil {
			return
		}
		r.mu.Lock()
		client, dropped := r.client, r.drop != nil && r.drop(buf[:n], false)
		r.mu.Unlock()
		if !dropped {
			_, _ = r.front.WriteTo(buf[:n], client)
		}
	}
}

// balance chooses the server of each datagram.
func (r *relay) balance(choose func(b []byte) net.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.choose = choose
}

// hold keeps what the client sends until release.
func (r *relay) hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holding = true
}

// release forwards what was held.
func (r *relay) release(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holding = false
	for _, b := range r.held {
		if _, err := r.back.WriteTo(b, r.server); err != nil {
			t.Error(err)
		}
	}
	r.held = nil
}

// flight returns the datagrams of the client so far.
func (r *relay) flight() [][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.recorded)
}

// setDrop changes which datagrams are lost.
func (r *relay) setDrop(f func(b []byte, toServer bool) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop = f
}

// backAddr is what the server sees.
func (r *relay) backAddr() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.back.LocalAddr().String()
}

// replay sends datagrams to a server from an address of its own, and returns how many bytes came
// back within wait.
func replay(t *testing.T, datagrams [][]byte, server net.Addr, wait time.Duration) (answered int) {
	t.Helper()
	c := udpConn(t)
	defer c.Close()
	for _, b := range datagrams {
		if _, err := c.WriteTo(b, server); err != nil {
			t.Fatal(err)
		}
	}
	_ = c.SetReadDeadline(time.Now().Add(wait))
	buf := make([]byte, 65536)
	for {
		n, _, err := c.ReadFrom(buf)
		if err != nil {
			return answered
		}
		answered += n
	}
}
