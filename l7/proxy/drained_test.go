package proxy

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/http2"
	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/l7/pool"
	"github.com/millrace/millrace/semantics"
	"github.com/millrace/millrace/websocket"
)

// The ends of frames are those of what websocket.Machine sends, however the bytes are cut.
func TestFramingFollowsFrames(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, role := range []websocket.Role{websocket.Client, websocket.Server} {
		m := websocket.NewMachine(role, websocket.MachineOptions{})
		var all []byte
		ends := []int{0}
		for _, n := range []int{0, 1, 125, 126, 127, 65535, 65536, 70000} {
			var err error
			all, err = m.AppendMessage(all, websocket.Binary, make([]byte, n))
			must(t, err)
			ends = append(ends, len(all))
			all, err = m.AppendPing(all, []byte("p"))
			must(t, err)
			ends = append(ends, len(all))
		}
		var f websocket.Framing
		for at := 0; at < len(all); {
			n := min(len(all)-at, 1+rng.IntN([]int{3, 300, 30000}[rng.IntN(3)]))
			if i, found := slices.BinarySearch(ends, at+n); !found && ends[i]-at > 0 && rng.IntN(2) == 0 {
				n = ends[i] - at
			}
			f.Pass(all[at : at+n])
			at += n
			if _, want := slices.BinarySearch(ends, at); f.Between() != want || f.Closed() {
				t.Fatalf("after %d bytes: between frames %v, want %v; closed %v", at, f.Between(), want, f.Closed())
			}
		}
		end, err := m.AppendClose(nil, websocket.CloseNormal, "")
		must(t, err)
		if f.Pass(end); !f.Closed() || !f.Between() {
			t.Errorf("a Close frame: closed %v, between frames %v", f.Closed(), f.Between())
		}
	}
}

// drainRig is a rig of two backends and a listener that passes connections on.
func drainRig(t *testing.T) *memRig {
	r := newMemRig(t, func(r *memRig, tree *Tree) {
		r.stream(tree, StreamTCP)
		all := []pool.BackendOptions{{Name: "b", Address: memBackend}, {Name: "c", Address: netip.MustParseAddrPort("198.18.1.2:8080")}}
		if err := r.to.Update(clock.Time(0), pool.Options{Name: "p"}, all); err != nil {
			t.Fatal(err)
		}
	})
	r.backend = func(p *memtransport.Peer) {
		p.Handler = func(p *memtransport.Peer) {
			b := p.Take()
			got, _ := p.User.([]byte)
			p.User = append(got, b...)
			if bytes.HasPrefix(b, []byte("GET /")) {
				p.Write([]byte(socketResponse))
			}
		}
	}
	return r
}

// socket opens a WebSocket.
func (r *memRig) socket() *memtransport.Peer {
	c := r.connect(memHTTP1)
	c.Write([]byte(socketRequest))
	r.run()
	if got := string(c.Take()); !strings.HasPrefix(got, "HTTP/1.1 101") {
		r.t.Fatalf("%q", got)
	}
	return c
}

// A WebSocket of a backend whose drain time is over gets a Close frame with 1001 where none of a frame is missing, and so does the
// backend. Otherwise it is reset. Those of other backends go on.
func TestDrainedWebSocketsEnd(t *testing.T) {
	for _, c := range []struct {
		name, down, up string
		frame, masked  bool
	}{
		{"nothing was sent", "", "", true, true},
		{"between frames", "\x81\x02hi\x00\x01x", "\x81\x82abcdef", true, true},
		{"within a frame", "\x81\x03hi", "\x81\x82abcdef", false, true},
		{"within a header", "\x81\x7e\x01", "\x81\x82ab", false, false},
		{"within a frame of the client", "\x81\x02hi", "\x81\x83abcdef", true, false},
		{"after a Close frame", "\x88\x00", "\x88\x80abcd", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := drainRig(t)
			client, other := r.socket(), r.socket()
			back := r.backs[0]
			back.Write([]byte(c.down))
			client.Write([]byte(c.up))
			r.run()
			client.Take()
			back.User = nil
			r.worker.EndStreams(r.to.Backends()[0])
			r.run()
			if got := client.Take(); c.frame != (string(got) == "\x88\x02\x03\xe9") || !client.Ended || client.Reset != (!c.frame && c.down != "\x88\x00") {
				t.Errorf("the client got %q, ended %v, reset %v", got, client.Ended, client.Reset)
			}
			masked, _ := back.User.([]byte)
			if ok := len(masked) == 8 && masked[0] == 0x88 && masked[1] == 0x82 && masked[6]^masked[2] == 3 && masked[7]^masked[3] == 0xe9; ok != c.masked || !back.Ended {
				t.Errorf("the backend got %x, ended %v", masked, back.Ended)
			}
			if other.Ended || r.backs[1].Ended {
				t.Error("the WebSocket of another backend has ended")
			}
			if s := r.worker.Stats(); s.Drained != 1 {
				t.Errorf("%d are counted", s.Drained)
			}
			for _, p := range r.backs {
				p.Close()
			}
			r.nothingLeft(client, other)
		})
	}
}

// The same of a WebSocket over HTTP/2: the stream ends after the frame.
func TestDrainedWebSocketsOverHTTP2End(t *testing.T) {
	r := drainRig(t)
	m := http2.NewMachine(http2.RoleClient, http2.Options{})
	client := r.connect(memHTTP2)
	client.Write(m.AppendControl(nil))
	r.run()
	var got []byte
	ended := false
	read := func() {
		r.run()
		for in := client.Take(); ; {
			ev, n, err := m.Input(in)
			must(t, err)
			in = in[n:]
			switch ev.Kind {
			case http2.Data:
				got = append(got, ev.Payload...)
			case http2.End:
				ended = true
			case http2.Failed:
				if ev.Code != http2.NoError { // which only says that the rest of the request is of no use
					t.Errorf("the stream was reset: %v", ev.Code)
				}
			case http2.NeedInput:
				return
			}
		}
	}
	read()
	s, err := m.Open()
	must(t, err)
	out, err := m.AppendRequest(m.AppendControl(nil), s, &semantics.Message{
		Method: "CONNECT", Protocol: "websocket", Scheme: "http", Authority: "a", Path: "/", ContentLength: -1,
		Fields: []semantics.Field{{Name: "sec-websocket-version", Value: "13"}},
	}, false)
	must(t, err)
	client.Write(out)
	r.backend = func(p *memtransport.Peer) {
		p.Handler = func(p *memtransport.Peer) {
			if _, key, ok := strings.Cut(string(p.Take()), "sec-websocket-key: "); ok {
				p.Write([]byte(strings.Replace(socketResponse, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", websocket.AcceptKey(key[:24]), 1)))
			}
		}
	}
	read()
	r.worker.EndStreams(r.to.Backends()[0])
	read()
	if string(got) != "\x88\x02\x03\xe9" || !ended {
		t.Errorf("the client got %q, ended %v", got, ended)
	}
	for _, p := range r.backs {
		p.Close()
	}
	r.nothingLeft(client)
}

// Connections that are passed through are reset, those that are being opened and those of other backends go on.
func TestDrainedPassesEnd(t *testing.T) {
	var records []Record
	r := drainRig(t)
	r.worker.OnRecord(func(rec *Record) { records = append(records, *rec) })
	client, other := r.connect(memStream), r.connect(memStream)
	r.run()
	r.loop.Dialed = func(netip.AddrPort) (func(p *memtransport.Peer), error) { return nil, nil }
	opening := r.connect(memStream)
	client.Write([]byte("a"))
	r.run()
	r.worker.EndStreams(r.to.Backends()[0])
	r.run()
	if !client.Reset || !r.backs[0].Reset || other.Ended || r.backs[1].Ended || opening.Ended {
		t.Errorf("reset %v %v, the other ended %v %v", client.Reset, r.backs[0].Reset, other.Ended, r.backs[1].Ended)
	}
	if len(records) != 1 || records[0].Error != "backend_drained" || r.worker.Stats().Drained != 1 {
		t.Errorf("%+v, %d are counted", records, r.worker.Stats().Drained)
	}
	r.pass(time.Second)
	r.backs[1].Close()
	r.nothingLeft(client, other, opening)
}

// A client that still sends gets the Close frame: its connection is not reset for what is not read any more.
func TestDrainedWebSocketsReadToTheEnd(t *testing.T) {
	r := drainRig(t)
	client := r.socket()
	r.worker.EndStreams(r.to.Backends()[0])
	client.Write(make([]byte, 4*link.ReadSize))
	r.run()
	if got := client.Take(); string(got) != "\x88\x02\x03\xe9" || !client.Ended || client.Reset {
		t.Errorf("%q, ended %v, reset %v", got, client.Ended, client.Reset)
	}
	r.backs[0].Close()
	r.nothingLeft(client)
}
