package proxy

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/l7/link"
)

// memStream is the address of the listener of streams of a memRig.
var memStream = netip.MustParseAddrPort("192.0.2.1:90")

// stream adds a listener that passes connections to the rig's backend.
func (r *memRig) stream(tree *Tree, mode StreamMode) *Listener {
	ln := *tree.Listeners[0]
	ln.Name, ln.Address, ln.HTTP1, ln.Stream, ln.Timeouts = "stream", memStream, nil, mode, memTimes
	tree.Listeners = append(tree.Listeners, &ln)
	return &ln
}

// A stream that carries as much as it can does not keep the others of its loop waiting.
func TestBulkDoesNotDelayOthers(t *testing.T) {
	r := newMemRig(t, func(r *memRig, tree *Tree) { r.stream(tree, StreamTCP) })
	r.backend = func(p *memtransport.Peer) { p.Window = 1 << 30 }
	bulk, small := r.connect(memStream), r.connect(memStream)
	r.run()
	left := -1
	r.backs[1].Handler = func(*memtransport.Peer) { left = bulk.Unread() }
	const size = 8 << 20
	bulk.Write(make([]byte, size))
	small.Write([]byte("a"))
	r.run()
	if left < size-(link.MaxSteps+1)*link.ReadSize {
		t.Errorf("%d bytes of the other connection went first", size-left)
	}
	if got := r.backs[0].Take(); !bytes.Equal(got, make([]byte, size)) {
		t.Errorf("%d bytes of %d", len(got), size)
	}
	r.nothingLeft(bulk, small)
}

// All that has arrived before a reset is passed on, however much it is.
func TestPassDeliversWhatCameBeforeAReset(t *testing.T) {
	r := newMemRig(t, func(r *memRig, tree *Tree) { r.stream(tree, StreamTCP) })
	r.backend = func(*memtransport.Peer) {}
	client := r.connect(memStream)
	client.Window = 1 << 30
	r.run()
	const size = 4 << 20
	r.backs[0].Write(make([]byte, size))
	r.backs[0].Abort()
	r.run()
	if n := len(client.Take()); n != size || !client.Reset {
		t.Errorf("%d bytes of %d, reset %v", n, size, client.Reset)
	}
	r.nothingLeft(client)
}

// What a client still sends has nowhere to go once the backend has reset the connection, and the client does not read the rest: the
// loop comes to rest.
func TestPassThatMovesToAClosedConnectionRests(t *testing.T) {
	r := newMemRig(t, func(r *memRig, tree *Tree) { r.stream(tree, StreamTCP) })
	r.loop.Relays = true
	r.backend = func(p *memtransport.Peer) { p.Window = 1 << 30 }
	client := r.connect(memStream)
	client.Window = 0
	r.run()
	client.Write(make([]byte, 4*link.ReadSize))
	r.run()
	if n := len(r.backs[0].Take()); n != 4*link.ReadSize {
		t.Fatalf("%d bytes", n)
	}
	r.backs[0].Write([]byte("the rest"))
	r.backs[0].Abort()
	r.run()
	client.Write(make([]byte, link.ReadSize))
	r.run()
	r.nothingLeft(client)
}

// The same of content of a request, whose response waits for the client.
func TestContentThatMovesToAClosedConnectionRests(t *testing.T) {
	r := newMemRig(t, nil)
	r.loop.Relays = true
	r.backend = func(p *memtransport.Peer) { p.Window = 1 << 30 }
	client := r.connect(memHTTP1)
	client.Window = 0
	client.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\nPUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n"))
	r.run()
	r.backs[0].Take()
	content := append(append([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n22000\r\n"), make([]byte, 0x22000)...), "\r\n0\r\n\r\n"...)
	r.backs[0].Write(content) // it fills what is gathered for the client
	r.run()
	client.Write(make([]byte, 4*link.ReadSize))
	r.run()
	if n := len(r.backs[0].Take()); n < 4*link.ReadSize {
		t.Fatalf("%d bytes", n)
	}
	r.backs[0].Abort()
	r.run()
	client.Write(make([]byte, link.ReadSize))
	r.run()
	r.nothingLeft(client)
}

// A connection to a backend that ends slowly, since it had got a part of content that was answered early, has nothing to say to the
// next request of the client: that one is read as far as its own backend takes it.
func TestAnEarlierReceiverResumesNoOtherRequest(t *testing.T) {
	r := newMemRig(t, func(r *memRig, _ *Tree) { r.rule.Attempt = 0 })
	r.loop.Relays = true
	r.backend = func(p *memtransport.Peer) { p.Window = 1000 }
	client := r.connect(memHTTP1)
	const first, second = 150000, 4 << 20
	client.Write([]byte(fmt.Sprintf("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", first)))
	r.run()
	client.Write(make([]byte, first/2))
	r.run()
	r.backs[0].Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
	r.run()
	client.Write(make([]byte, first-first/2))
	client.Write([]byte(fmt.Sprintf("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n", second)))
	client.Write(make([]byte, second))
	r.run()
	if len(r.backs) != 2 || client.Unread() < second/2 {
		t.Fatalf("%d connections, %d bytes unread", len(r.backs), client.Unread())
	}
	unread := client.Unread()
	r.backs[0].Take()
	r.run()
	if got := client.Unread(); got != unread {
		t.Errorf("%d bytes unread, before %d", got, unread)
	}
	for _, b := range r.backs {
		b.Abort()
	}
	r.nothingLeft(client)
}
