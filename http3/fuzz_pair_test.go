package http3

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace/millrace/http3/qpack"
)

// pair is two machines whose streams deliver when the fuzzer says, in pieces. Whatever its order, all that one
// sends the other receives.
type pair struct {
	t        *testing.T
	rng      *rand.Rand
	machines [2]*Machine // client, server
	uni      [2]map[uint64]*Stream
	sent     [2]map[uint64]*[]byte // by sender and stream: what is on its way
	fin      [2]map[uint64]bool
	streams  [2]map[uint64]*Stream // request streams, as each end receives them
	want     [2]map[uint64][]string
	got      [2]map[uint64][]string
	ids      []uint64
	answered map[uint64]bool
}

func newPair(t *testing.T, rng *rand.Rand, o MachineOptions) *pair {
	p := &pair{t: t, rng: rng, answered: map[uint64]bool{}}
	p.machines = [2]*Machine{NewMachine(RoleClient, o), NewMachine(RoleServer, o)}
	for end := range 2 {
		p.uni[end], p.streams[end] = map[uint64]*Stream{}, map[uint64]*Stream{}
		p.sent[end], p.fin[end] = map[uint64]*[]byte{}, map[uint64]bool{}
		p.want[end], p.got[end] = map[uint64][]string{}, map[uint64][]string{}
	}
	return p
}

func (p *pair) append(end int, stream uint64, b []byte) {
	if p.sent[end][stream] == nil {
		p.sent[end][stream] = new([]byte)
	}
	*p.sent[end][stream] = append(*p.sent[end][stream], b...)
}

// flush puts what a machine has pending on its three streams.
func (p *pair) flush(end int) {
	m, first := p.machines[end], uint64(2+end)
	p.append(end, first, m.AppendControl(nil))
	p.append(end, first+4, m.AppendEncoder(nil))
	p.append(end, first+8, m.AppendDecoder(nil))
}

// note keeps what is expected, and received; parts of content are joined.
func note(to map[uint64][]string, id uint64, kind EventKind, what string) {
	list := to[id]
	if n := len(list); kind == Data && n > 0 && strings.HasPrefix(list[n-1], "data ") {
		list[n-1] += what
		return
	}
	if kind == Data {
		what = "data " + what
	}
	to[id] = append(list, what)
}

// message sends a header, perhaps content, perhaps trailers, and the end.
func (p *pair) message(end int, id uint64, fields []qpack.Field, content []byte) {
	m, other := p.machines[end], p.want[1-end]
	p.append(end, id, m.AppendHeaders(nil, id, fields))
	note(other, id, Headers, fmt.Sprint("headers ", fields))
	for len(content) > 0 {
		n := min(len(content), 1+p.rng.IntN(300))
		p.append(end, id, append(AppendDataHeader(nil, n), content[:n]...))
		note(other, id, Data, string(content[:n]))
		content = content[n:]
	}
	if p.rng.IntN(3) == 0 {
		trailer := []qpack.Field{{Name: "x-sum", Value: fmt.Sprint(p.rng.IntN(20))}}
		p.append(end, id, m.AppendHeaders(nil, id, trailer))
		note(other, id, Trailers, fmt.Sprint("trailers ", trailer))
	}
	p.fin[end][id] = true
	note(other, id, End, "end")
}

func (p *pair) request(content []byte) {
	id := uint64(len(p.ids)) * 4
	s, err := p.machines[0].Open(id)
	if err != nil {
		p.t.Fatal(err)
	}
	p.ids, p.streams[0][id] = append(p.ids, id), s
	p.message(0, id, []qpack.Field{
		{Name: ":method", Value: "POST"},
		{Name: ":authority", Value: "h3.example"},
		{Name: ":scheme", Value: "https"},
		{Name: ":path", Value: fmt.Sprint("/", p.rng.IntN(30))},
		{Name: "x-name", Value: strings.Repeat("v", p.rng.IntN(40))},
	}, content)
}

func (p *pair) response(id uint64, content []byte) {
	if p.answered[id] {
		return
	}
	p.answered[id] = true
	for range p.rng.IntN(2) {
		hints := []qpack.Field{{Name: ":status", Value: "103"}, {Name: "link", Value: "</s>"}}
		p.append(1, id, p.machines[1].AppendHeaders(nil, id, hints))
		note(p.want[0], id, Headers, fmt.Sprint("headers ", hints))
	}
	p.message(1, id, []qpack.Field{{Name: ":status", Value: "200"}, {Name: "x-name", Value: fmt.Sprint("v", p.rng.IntN(30))}}, content)
}

// deliver moves a part of what is on its way on one stream.
func (p *pair) deliver(end int, id uint64) {
	to := 1 - end
	m, b := p.machines[to], p.sent[end][id]
	s := p.receiving(to, id)
	if b == nil || s == nil || s.Blocked() || s.Ended() {
		return
	}
	n := len(*b)
	if n > 0 && p.rng.IntN(4) > 0 {
		n = p.rng.IntN(n + 1)
	}
	piece, fin := (*b)[:n], p.fin[end][id] && n == len(*b)
	used := 0
	for {
		ev, k, err := m.Input(s, piece[used:], fin)
		used += k
		if err != nil {
			p.t.Fatalf("end %d, stream %d: %v", to, id, err)
		}
		p.event(to, s, ev)
		if ev.Kind == NeedInput {
			break
		}
	}
	if used < n && !s.Blocked() {
		p.t.Fatalf("end %d, stream %d: %d bytes of %d", to, id, used, n)
	}
	*b = (*b)[used:]
}

// receiving returns the stream as an end receives it.
func (p *pair) receiving(to int, id uint64) *Stream {
	streams := p.streams[to]
	if isUni(id) {
		streams = p.uni[to]
	}
	if streams[id] == nil {
		if !isUni(id) && to == 0 {
			return nil
		}
		s, err := p.machines[to].Open(id)
		if err != nil {
			p.t.Fatal(err)
		}
		streams[id] = s
	}
	return streams[id]
}

func (p *pair) event(to int, s *Stream, ev Event) {
	switch ev.Kind {
	case Headers, Trailers:
		name := "headers "
		if ev.Kind == Trailers {
			name = "trailers "
		}
		note(p.got[to], s.ID(), ev.Kind, fmt.Sprint(name, s.Section.Fields))
	case Data:
		note(p.got[to], s.ID(), Data, string(ev.Payload))
	case End:
		note(p.got[to], s.ID(), End, "end")
	case Unblocked:
		for found := true; found; {
			_, found = p.machines[to].NextUnblocked()
		}
	}
}

// settle delivers everything.
func (p *pair) settle() {
	for range 50 {
		for end := range 2 {
			p.flush(end)
			for id := uint64(2 + end); id < 16; id += 4 {
				p.deliver(end, id)
			}
			for _, id := range p.ids {
				p.deliver(end, id)
			}
		}
	}
}

// FuzzMachinePair calls two machines in an order and delivers in pieces that the fuzzer chooses. Every message
// arrives whole, with the dynamic table, blocked streams and interim responses, and no machine fails.
func FuzzMachinePair(f *testing.F) {
	f.Add([]byte{0, 2, 1, 3, 2, 3, 4, 5, 6, 7}, []byte("content"), uint64(1), uint16(4096), uint8(16))
	f.Add([]byte{0, 8, 16, 3, 1, 9, 17, 4, 4}, bytes.Repeat([]byte("x"), 1000), uint64(2), uint16(100), uint8(2))
	f.Add([]byte{0, 0, 0, 7, 1, 6, 5}, []byte{}, uint64(3), uint16(0), uint8(0))
	f.Fuzz(func(t *testing.T, calls, content []byte, seed uint64, capacity uint16, blocked uint8) {
		o := MachineOptions{TableCapacity: int(capacity) - 1, BlockedStreams: int(blocked) - 1, Encoder: qpack.EncoderOptions{MaxCapacity: int(capacity)}}
		p := newPair(t, rand.New(rand.NewPCG(seed, 9)), o)
		if len(content) > 2000 || len(calls) > 500 {
			return
		}
		p.flush(0) // settings come first (RFC 9114 6.2.1)
		p.flush(1)
		for _, c := range calls {
			arg := int(c >> 3)
			switch c & 7 {
			case 0:
				if len(p.ids) < 50 {
					p.request(content[:min(len(content), arg*64)])
				}
			case 1:
				if arg < len(p.ids) && len(p.got[1][p.ids[arg]]) > 0 {
					p.response(p.ids[arg], content)
				}
			case 2, 3:
				p.flush(int(c & 1))
			case 4, 5:
				if arg < len(p.ids) {
					p.deliver(int(c&1), p.ids[arg])
				}
			case 6:
				p.deliver(arg&1, uint64(arg&1+2+arg>>1%3*4))
			case 7:
				if arg < len(p.ids) {
					p.machines[0].UpdatePriority(p.ids[arg], Priority{Urgency: c & 7, Incremental: arg&1 != 0})
				}
			}
		}
		p.settle()
		for end := range 2 {
			for id, want := range p.want[end] {
				if got := p.got[end][id]; fmt.Sprint(got) != fmt.Sprint(want) {
					t.Fatalf("end %d, stream %d:\n%.300q\nwant\n%.300q", end, id, got, want)
				}
			}
		}
	})
}

// fuzzFields cuts fields from a text: a name and a value to a line, a tab between.
func fuzzFields(text string) (fields []qpack.Field) {
	for line := range strings.SplitSeq(text, "\n") {
		name, value, _ := strings.Cut(line, "\t")
		fields = append(fields, qpack.Field{Name: name, Value: value})
	}
	return fields
}

// FuzzMessage validates field sections. What is accepted obeys the rules of RFC 9114 4.2 and 4.3, written
// out a second time without regard to speed.
func FuzzMessage(f *testing.F) {
	f.Add(":method\tGET\n:scheme\thttps\n:authority\ta.example\n:path\t/\nte\ttrailers\ncontent-length\t5", false)
	f.Add(":method\tCONNECT\n:authority\ta.example:443", false)
	f.Add(":method\tCONNECT\n:protocol\twebsocket\n:scheme\thttps\n:authority\ta.example\n:path\t/", false)
	f.Add(":status\t200\ncontent-length\t0\nx\ty z", true)
	f.Fuzz(func(t *testing.T, text string, response bool) {
		fields := fuzzFields(text)
		var m Message
		err := invalid(m.ReadRequest(fields, true))
		if response {
			err = invalid(m.ReadResponse(fields))
		}
		var se *StreamError
		if err != nil {
			if !errors.As(err, &se) || se.Code != MessageError {
				t.Fatalf("%T %v", err, err)
			}
			return
		}
		seen := map[string]int{}
		for i, fd := range fields {
			pseudo := strings.HasPrefix(fd.Name, ":")
			seen[fd.Name]++
			switch {
			case fd.Name == "", pseudo && seen[fd.Name] > 1, pseudo && i > 0 && !strings.HasPrefix(fields[i-1].Name, ":"),
				strings.ToLower(fd.Name) != fd.Name, strings.ContainsAny(fd.Name, " \t\r\n\x00\"(),/;<=>?@[\\]{}\x7f"),
				strings.ContainsAny(fd.Value, "\r\n\x00\x7f"), strings.Trim(fd.Value, " \t") != fd.Value,
				fd.Name == "connection" || fd.Name == "transfer-encoding" || fd.Name == "upgrade" || fd.Name == "te" && !strings.EqualFold(fd.Value, "trailers"):
				t.Fatalf("accepted: %+v", fields)
			}
		}
		if response {
			if seen[":status"] != 1 || fields[0].Value != fmt.Sprintf("%03d", m.Status) || m.Status == 101 {
				t.Fatalf("status %d of %+v", m.Status, fields)
			}
			return
		}
		connect := m.Method == "CONNECT" && m.Protocol == ""
		if seen[":method"] != 1 || connect != (seen[":scheme"] == 0) || connect != (seen[":path"] == 0) || m.Scheme == "https" && m.Authority == "" {
			t.Fatalf("%+v of %+v", m, fields)
		}
	})
}

// FuzzDatagram parses HTTP datagrams and makes them again.
func FuzzDatagram(f *testing.F) {
	f.Add(AppendDatagram(nil, 8, []byte("x")))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Add([]byte{0x40, 0x01, 'a'})
	f.Fuzz(func(t *testing.T, p []byte) {
		stream, payload, err := ParseDatagram(p)
		if err != nil {
			var ce *ConnError
			if !errors.As(err, &ce) || ce.Code != DatagramError {
				t.Fatal(err)
			}
			return
		}
		if stream&3 != 0 || stream > maxVarint || len(payload) > len(p)-1 {
			t.Fatalf("stream %d, %d bytes of %d", stream, len(payload), len(p))
		}
		again, rest, err := ParseDatagram(AppendDatagram(nil, stream, payload))
		if err != nil || again != stream || !bytes.Equal(rest, payload) {
			t.Fatalf("%d %q became %d %q, %v", stream, payload, again, rest, err)
		}
	})
}
