package datapath

import (
	"testing"

	"github.com/millrace/millrace/packet"
	"github.com/millrace/millrace/wire"
)

// RFC 1122 4.2.2.13 and RFC 6191 2, as Linux has them in tcp_timewait_state_process; numbers wrap.
func TestWhichSYNEndsTimeWait(t *testing.T) {
	const top = 1<<32 - 1
	for _, c := range []struct {
		name       string
		next, last uint32
		seq, stamp uint32
		want       acceptance
	}{
		{"larger number, newer timestamp", 1000, 50, 1001, 51, acceptedByAll},
		{"larger number, same timestamp", 1000, 50, 1001, 50, acceptedByAll},
		{"larger number, older timestamp", 1000, 50, 1001, 49, acceptedByNone},
		{"smaller number, newer timestamp", 1000, 50, 999, 51, acceptedByStamp},
		{"smaller number, same timestamp", 1000, 50, 999, 50, acceptedByNone},
		{"the next number, same timestamp", 1000, 50, 1000, 50, acceptedByNone},
		{"the next number, no timestamps", 1000, 0, 1000, 0, acceptedByNone},
		{"larger number, no timestamps", 1000, 0, 1001, 0, acceptedByAll},
		{"smaller number, no timestamps", 1000, 0, 999, 0, acceptedByNone},
		{"timestamps of the SYN only", 1000, 0, 999, 50, acceptedByNone},
		{"timestamps of the old one only", 1000, 50, 1001, 0, acceptedByAll},
		{"a number behind the wrap", top, 0, 1, 0, acceptedByAll},
		{"a timestamp behind the wrap", 1000, top, 999, 1, acceptedByStamp},
	} {
		w := timeWait{c.next, c.last}
		if got := w.accepts(&opening{c.seq, c.stamp}); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// A FIN takes a number behind the data (RFC 9293 3.4); of a fragment the data is not counted.
func TestTheEndOfASegment(t *testing.T) {
	for _, c := range []struct {
		flags wire.TCPFlags
		part  part
		want  uint32
	}{{wire.FlagACK, whole, 1010}, {wire.FlagACK | wire.FlagFIN, whole, 1011}, {wire.FlagACK, first, 1000}, {wire.FlagACK | wire.FlagFIN, first, 1001}} {
		p := wire.AppendEthernet(nil, wire.MAC{}, wire.MAC{}, wire.EtherTypeIPv4)
		p = wire.AppendIPv4(p, &wire.IPv4Header{Proto: wire.ProtoTCP, TTL: 64, PayloadLen: wire.TCPLen + 10})
		l4 := len(p)
		p = append(wire.AppendTCP(p, &wire.TCPHeader{Seq: 1000, Flags: c.flags}), make([]byte, 10)...)
		d := packet.Desc{L3: wire.EthernetLen, L4: uint16(l4), Proto: wire.ProtoTCP, Flags: packet.FlagIPv4, Len: uint16(len(p))}
		var v view
		v.read(&d, p)
		v.part = c.part
		if got := v.segmentEnd(wire.TCP(p[l4:])); got != c.want {
			t.Errorf("flags %#02x, part %d: %d, want %d", c.flags, c.part, got, c.want)
		}
	}
}

// The ring keeps its order when it grows around its end, and when a port leaves from the middle.
func TestRestingPortsKeepTheirOrder(t *testing.T) {
	var r resting
	next := uint16(0)
	push := func(n int) {
		for range n {
			r.push(restingPort{port: next})
			next++
		}
	}
	push(10)
	for range 5 {
		r.remove(0)
	}
	push(30)
	r.remove(3)
	for i, want := 0, uint16(5); i < r.n; i, want = i+1, want+1 {
		if want == 8 {
			want++
		}
		if got := r.at(i).port; got != want {
			t.Fatalf("port %d is %d, want %d", i, got, want)
		}
	}
}

// Of the first few ports one that all backends take comes before an older one that needs timestamps; those behind
// are looked at only where none suits.
func TestTheOldestPortThatSuitsIsTaken(t *testing.T) {
	syn := opening{seq: 1000, stamp: 50}
	none, stamp, all := timeWait{2000, 60}, timeWait{2000, 40}, timeWait{500, 40}
	for _, c := range []struct {
		name string
		list []timeWait
		want int
	}{
		{"the first", []timeWait{all, all}, 0},
		{"one for all", []timeWait{stamp, none, all}, 2},
		{"one with timestamps", []timeWait{none, stamp, none}, 1},
		{"an older one", []timeWait{stamp, none, none, none, none, none, none, none, all}, 0},
		{"a late one", append(make31(none), all), 31},
		{"too late", append(append(make31(none), none), all), -1},
	} {
		var r resting
		for i, w := range c.list {
			r.push(restingPort{timeWait: w, port: uint16(i)})
		}
		port, ok := r.take(&syn)
		if got := int(port); ok != (c.want >= 0) || ok && got != c.want {
			t.Errorf("%s: port %d, %v, want %d", c.name, got, ok, c.want)
		}
		if ok && r.n != len(c.list)-1 {
			t.Errorf("%s: %d ports are left of %d", c.name, r.n, len(c.list))
		}
	}
}

func make31(w timeWait) (list []timeWait) {
	for range 31 {
		list = append(list, w)
	}
	return list
}

// A segment without a timestamp takes none away, wherever the number stands.
func TestASegmentWithoutTimestampLeavesTheLast(t *testing.T) {
	for _, stamp := range []uint32{1, 1 << 31, 1<<31 + 5, 1<<32 - 1} {
		end := timeWait{next: 1000, stamp: stamp}
		if end.update(false, 1001, 0); end != (timeWait{1001, stamp}) {
			t.Errorf("%d became %+v", stamp, end)
		}
	}
}
