package tcp_test

import (
	"fmt"
	"log"
	"slices"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/tcp"
	"github.com/millrace/millrace/wire"
)

// network carries the segments of one Mux to another one. It keeps them until the caller delivers them: Send is called from
// within a call of the sender.
type network struct {
	to     *tcp.Mux
	tuples []wire.Tuple
	bytes  []wire.TCP
}

func (n *network) MTU(*wire.Tuple) int     { return 1500 }
func (n *network) LinkMTU(*wire.Tuple) int { return 1500 }
func (n *network) Offload() int            { return 1200 } // less than a segment has: there is nothing to cut

func (n *network) Send(_ clock.Time, o *tcp.Outgoing) bool {
	header := wire.AppendTCP(nil, &o.Header)
	n.tuples = append(n.tuples, o.Tuple.Reverse())
	n.bytes = append(n.bytes, slices.Concat(header, o.Payload[0], o.Payload[1]))
	return true
}

// deliver passes the segments on, and reports whether there were any.
func (n *network) deliver(now clock.Time) bool {
	tuples, segments := n.tuples, n.bytes
	n.tuples, n.bytes = nil, nil
	for i, b := range segments {
		s := tcp.Segment{
			Seq: b.Seq(), Ack: b.Ack(), Window: b.Window(), Flags: b.Flags(), Packets: 1, Len: uint32(len(b.Payload())),
			Payload: [][]byte{b.Payload()}, Raw: b,
		}
		b.ParseOptions(&s.Options)
		n.to.Input(now, &tuples[i], &s)
	}
	return len(segments) > 0
}

type owner struct{}

func (owner) Ready(tcp.Events) {}

// Two hosts talk in virtual time, without a network, a goroutine or a clock.
func ExampleMux() {
	now := clock.Time(time.Hour)
	client, server := &network{}, &network{}
	a := tcp.NewMux(tcp.Config{Output: client, Now: now})
	b := tcp.NewMux(tcp.Config{Output: server, Now: now})
	client.to, server.to = b, a
	exchange := func() {
		for more := true; more; {
			a.Poll(now)
			b.Poll(now)
			fromClient, fromServer := client.deliver(now), server.deliver(now)
			more = fromClient || fromServer
		}
	}

	l, err := b.Listen(wire.Addr{}, 80, 16, nil, owner{})
	if err != nil {
		log.Fatal(err)
	}
	t := wire.Tuple{Local: wire.AddrFrom4([4]byte{198, 18, 0, 1}), Remote: wire.AddrFrom4([4]byte{198, 18, 0, 2}), RemotePort: 80}
	c, err := a.Connect(now, t, nil, owner{})
	if err != nil {
		log.Fatal(err)
	}
	exchange()
	peer := l.Accept()
	peer.SetOwner(owner{})
	c.Write(now, []byte("hello"))
	exchange()
	buf := make([]byte, 16)
	n := peer.Read(now, buf)
	fmt.Printf("%v: %s\n", peer.State(), buf[:n])

	c.Abort(now)
	exchange()
	fmt.Printf("%v: %v\n", peer.State(), peer.Err())
	peer.Close(now)
	// Output:
	// ESTABLISHED: hello
	// CLOSED: tcp: connection reset by peer
}
